"""The play model in Chromium against `minigpt`: logits, texts, counts, the context limit, memory."""

import random
from types import SimpleNamespace

import pytest
import torch

from minigpt import AttentionRecorder, GPTConfig, KVCache, MiniGPT, SamplingParams, generate, load
from minigpt.choosing import repeated_windows
from minigpt.corpus import HELD_OUT, play
from minigpt.costs import tokens_through_model
from minigpt.explorers.distributions import catalogue
from minigpt.explorers.weights import NAMES, write
from minigpt.sampling import ORDERS, Uniforms

FIGURES = (SimpleNamespace(scripts=("loops.js", "engine.js"), name="session"),)  # no figure: the scripts alone
ORDER = {order["name"]: order["rules"] for order in catalogue()["orders"]}
CONTEXT, KEEP = 256, 128
PROMPTS = 20

TOOLS = """
globalThis.engine = {
  // A play model, loaded as a page loads it.
  get: (name) => new Promise((resolve, reject) => {
    const arrived = (error) => (error ? reject(new Error(error)) : resolve(nextToken.playModel(name)));
    if (nextToken.playModel(name)) arrived();
    else nextToken.fetchModel(new nextToken.StaticModel({}), name, arrived);
  }),
  session: async (name, text, options) => {
    const lm = await engine.get(name);
    return new nextToken.Session(lm, lm.tokenizer.encode(text).ids, options);
  },
  // Logits after every token of a text.
  async logits(name, text) {
    const { model, tokenizer } = await engine.get(name), cache = new nextToken.engine.Cache(model.config);
    return tokenizer.encode(text).ids.map((id) => Array.from(model.forward(id, cache)));
  },
  // A session's text after n steps, with what it counted.
  async write(name, text, n, options) {
    const session = await engine.session(name, text, options);
    for (let i = 0; i < n && !session.finished; i++) {
      session.work();
      session.step();
    }
    const { tokens, undone } = session.counts;
    return { text: session.lm.tokenizer.decode(session.text), tokens, undone, predicted: session.predicted(),
      finished: session.finished };
  },
};
"""


@pytest.fixture(scope="module")
def weights():
    """The scripts that hold the models."""
    write()


@pytest.fixture
def page(weights, page):
    page.evaluate(TOOLS)
    return page


@pytest.fixture(scope="module")
def models():
    return {name: load(name) for name in NAMES}


def passages(n, length, seed):
    """Passages of the held-out plays, of up to so many characters."""
    pick, text = random.Random(seed), play(HELD_OUT[0])
    starts = [pick.randrange(len(text) - length) for _ in range(n)]
    return [text[start : start + pick.randrange(1, length + 1)] for start in starts]


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_torchs(page, models, name):
    """Twenty passages of up to the whole context: each logit after each token within 1e-4."""
    model, tokenizer = models[name]
    for text in [*passages(PROMPTS - 1, 120, seed=1), play(HELD_OUT[0])[:CONTEXT]]:
        found = torch.tensor(page.evaluate("([name, text]) => engine.logits(name, text)", [name, text]))
        with torch.no_grad():
            expected = model(torch.tensor([tokenizer.encode(text)]))[0]
        assert (found - expected).abs().max() < 1e-4


def written(page, name, text, n, **options):
    return page.evaluate("([name, text, n, options]) => engine.write(name, text, n, options)", [name, text, n, options])


@pytest.mark.parametrize("cached", [True, False])
def test_greedy_texts_are_minigpts(page, models, cached):
    """Ten prompts, 200 characters: the same text, and as many tokens through the model as the formula says."""
    for i, text in enumerate(passages(10, 56, seed=2)):
        name = NAMES[i % 2]
        model, tokenizer = models[name]
        ids = torch.tensor([tokenizer.encode(text)])
        expected = generate(model, ids, max_new_tokens=200, params=SamplingParams(temperature=0))
        answer = written(page, name, text, 200, settings={"temperature": 0}, cached=cached)
        assert answer["text"] == tokenizer.decode(expected.token_ids[0].tolist())
        P, N = len(text), expected.new_token_ids.size(1)
        assert answer["tokens"] == answer["predicted"] == tokens_through_model(P, N, cached=cached)


def random_settings(pick):
    """Settings that an order has, some of them off."""
    order = pick.choice(list(ORDERS))
    values = {
        "temperature": pick.choice((0.5, 0.8, 1.0, 1.3)),
        "top_k": pick.choice((None, 5, 20)),
        "top_p": pick.choice((None, 0.8, 0.95)),
        "min_p": pick.choice((None, 0.05)),
        "typical_p": pick.choice((None, 0.9)),
        "top_n_sigma": pick.choice((None, 1.5)),
        "repetition_penalty": pick.choice((None, 1.1, 1.3)),
        "frequency_penalty": pick.choice((None, 0.2)),
        "presence_penalty": pick.choice((None, 0.4)),
        "no_repeat_ngram_size": pick.choice((None, 4)),
    }
    return order, {key: value for key, value in values.items() if value is not None and key in ORDERS[order]}


def test_sampled_texts_are_minigpts(page, models):
    """Thirty random settings in the three orders: the seed draws the same characters in page and package."""
    pick = random.Random(3)
    for i, text in enumerate(passages(30, 40, seed=4)):
        order, settings = random_settings(pick)
        model, tokenizer = models[NAMES[i % 2]]
        params = SamplingParams(**settings, order=order, seed=i)
        expected = generate(model, torch.tensor([tokenizer.encode(text)]), max_new_tokens=60, params=params)
        asked = {"settings": {**settings, "seed": i}, "order": ORDER[order], "cached": i % 3 > 0}
        answer = written(page, NAMES[i % 2], text, 60, **asked)
        assert answer["text"] == tokenizer.decode(expected.token_ids[0].tolist()), (settings, order)


def test_uniforms_can_be_given(page):
    """`choose(u)` is the draw's rule; the session's own numbers are those of `minigpt.sampling`."""
    found = page.evaluate("""async () => {
      const session = await engine.session("shakespeare", "ROMEO:", { settings: { seed: 7 } });
      session.work();
      return [session.uniform(0), session.uniform(99), session.choose(0), session.choose(1 - 2 ** -53)];
    }""")
    stream = Uniforms([7], [0])
    numbers = [stream.next().item() for _ in range(100)]
    assert found == [numbers[0], numbers[99], 0, 74]


@pytest.mark.parametrize("cached", [True, False])
def test_at_the_context_limit_a_session_stops_or_slides(page, models, cached):
    """Stopped, it is `generate`'s text; sliding, it reads the last 128 anew, and the counts say so."""
    model, tokenizer = models["shakespeare"]
    text = play(HELD_OUT[0])[:200]
    how = {"settings": {"temperature": 0}, "cached": cached}
    answer = written(page, "shakespeare", text, 400, **how)
    assert answer["finished"] and len(answer["text"]) == CONTEXT
    assert answer["tokens"] == tokens_through_model(200, 56, cached=cached)

    ids, wanted, tokens = tokenizer.encode(text), 400 if cached else 70, 0
    while len(ids) < 200 + wanted:
        P = min(len(ids), CONTEXT) if len(ids) < CONTEXT else KEEP
        N = min(CONTEXT - P, 200 + wanted - len(ids))
        greedy = {"max_new_tokens": N, "params": SamplingParams(temperature=0)}
        ids += generate(model, torch.tensor([ids[-P:]]), **greedy).new_token_ids[0].tolist()
        tokens += tokens_through_model(P, N, cached=cached)
    answer = written(page, "shakespeare", text, wanted, slide=True, **how)
    assert answer["text"] == tokenizer.decode(ids)
    assert answer["tokens"] == answer["predicted"] == tokens


def test_taking_back_and_going_on(page):
    """Back to any place: the same seed gives the same text again, another one another; what was undone is counted."""
    found = page.evaluate("""async () => {
      const out = [];
      for (const [cached, slide, n] of [[true, false, 60], [false, false, 30], [true, true, 300]]) {
        const session = await engine.session("shakespeare", "JULIET:", { settings: { seed: 3 }, cached, slide });
        const go = (to) => {
          while (session.newTokens < to) { session.work(); session.step(); }
          return session.text.join();
        };
        const first = go(n), spent = session.counts.tokens;
        session.rewind(n - 20);
        const again = go(n), same = session.counts;
        session.rewind(n - 20);
        session.change({ seed: 4 });
        const other = go(n);
        session.rewind(0);
        session.work();
        out.push([first === again, first === other, spent, same.tokens, same.undone, session.newTokens,
          session.pass !== null, session.counts.tokens]);
      }
      return out;
    }""")
    for i, (same, other, spent, tokens, undone, new, ready, at_start) in enumerate(found):
        assert same and not other and new == 0 and ready
        assert at_start == 7  # the prompt alone
        if i < 2:
            assert tokens == spent
        assert undone > 0


def test_what_a_prompt_may_hold(page):
    """Unknown characters are named and left out; a paste of 5,000 is cut to the context; an empty one is refused."""
    found = page.evaluate("""async () => {
      const { tokenizer } = await engine.get("shakespeare"), paste = "To be, or not to be. ".repeat(300).slice(0, 5000);
      const long = await engine.session("shakespeare", paste, { settings: { temperature: 0 } });
      long.work();
      const error = await engine.session("shakespeare", "").catch((e) => e.message);
      return [tokenizer.encode("naïve 日本\\r\\n€ é"), long.cut, long.text.length, long.pass.logits.length, error];
    }""")
    encoded, cut, length, V, error = found
    assert encoded["unknown"] == ["ï", "日", "本", "€", "é"]
    assert load("shakespeare")[1].decode(encoded["ids"]) == "nave \n "
    assert (cut, length, V) == (5000 - CONTEXT + 1, CONTEXT - 1, 75)
    assert error == "the prompt is empty: a model needs a token to start from"


def test_wrong_calls_are_refused(page):
    """An id outside the vocabulary, a full cache, a rewind or a cut too far, a step too early."""
    messages = page.evaluate("""async () => {
      const { model } = await engine.get("shakespeare"), cache = new nextToken.engine.Cache(model.config);
      const told = (run) => { try { return String(run()); } catch (error) { return error.message; } };
      const out = [() => model.forward(75, cache), () => model.forward(1.5, cache), () => cache.truncate(1)].map(told);
      cache.length = 256;
      out.push(told(() => model.forward(0, cache)));
      const session = await engine.session("shakespeare", "ROMEO:");
      out.push(told(() => session.step(0)), told(() => session.rewind(1)));
      return out;
    }""")
    assert messages == [
        "token id 75 is outside the vocabulary of 75",
        "token id 1.5 is outside the vocabulary of 75",
        "truncate(1): the cache holds 0",
        "position 256 is past context_length=256",
        "the distribution is not there yet",
        "rewind(1): there are 0 new tokens",
    ]


def test_attention_is_minigpts(page, models):
    """The weights of the last token, layer by layer and head by head: they are softmax over the keys."""
    model, tokenizer = models["shakespeare"]
    found = page.evaluate("""async () => {
      const session = await engine.session("shakespeare", "ROMEO:\\nWhat light");
      session.work();
      return session.pass.attention.map((row) => Array.from(row));
    }""")
    recorder = AttentionRecorder(KVCache(model.config, 1, 64))
    with torch.no_grad():
        model(torch.tensor([tokenizer.encode("ROMEO:\nWhat light")]), recorder)
    (maps,) = recorder.maps  # (L, B, H, T, S)
    assert (torch.tensor(found) - maps[:, 0, :, -1].flatten(0, 1)).abs().max() < 1e-5


def test_work_comes_in_slices(page):
    """A pass of 250 tokens without a cache in slices of 5 ms: no slice does it all, and the result is the same."""
    slices, same = page.evaluate("""async () => {
      const text = "To be, or not to be. ".repeat(12).slice(0, 250);
      const [whole, cut] = [await engine.session("shakespeare", text), await engine.session("shakespeare", text)];
      whole.work();
      let slices = 1;
      while (!cut.work(5)) slices++;
      return [slices, cut.pass.logits.join() === whole.pass.logits.join() && cut.counts.tokens === 250];
    }""")
    assert slices > 3 and same


def test_memory_stays(page):
    """20,000 tokens past the context limit: the heap at the end is that after 5,000, within 5 %."""
    client = page.context.new_cdp_session(page)
    page.evaluate("""async () => {
      window.endless = await engine.session("shakespeare", "ROMEO:", { settings: { seed: 1 }, slide: true });
      window.writeOn = (n) => { for (let i = 0; i < n; i++) { endless.work(); endless.step(); } };
    }""")

    def heap_after(n):
        page.evaluate("(n) => writeOn(n)", n)
        client.send("HeapProfiler.collectGarbage")
        return client.send("Runtime.getHeapUsage")

    early = heap_after(5000)
    late = heap_after(15_000)
    total = [use["usedSize"] + use.get("backingStorageSize", 0) for use in (early, late)]
    assert total[1] < 1.05 * total[0], total


def test_loops_are_measured_as_in_minigpt(page):
    """The share of repeated windows, and each token that stands in one."""
    pick = random.Random(5)
    for _ in range(60):
        ids = [pick.randrange(3) for _ in range(pick.randrange(60))]
        size = pick.randrange(1, 8)
        share, marked = page.evaluate(
            "([ids, size]) => { const r = nextToken.repeats(ids, size); return [r.share, Array.from(r.marked)]; }",
            [ids, size],
        )
        assert share == pytest.approx(repeated_windows(ids, size))
        windows = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
        again = [i for i, window in enumerate(windows) if window in windows[:i]]
        assert marked == [int(any(i <= at < i + size for i in again)) for at in range(len(ids))]


def test_the_formulas_are_costs(page):
    for P, N in ((1, 0), (1, 1), (183, 64), (7, 200)):
        for cached in (True, False):
            found = page.evaluate("([P, N, cached]) => nextToken.tokensThrough(P, N, cached)", [P, N, cached])
            assert found == tokens_through_model(P, N, cached=cached)


def test_another_shape_of_model(page):
    """No size is built in: a model with other heads, width and layers gives torch's logits as well."""
    torch.manual_seed(0)
    config = GPTConfig(11, 2, 6, 2, 30, 21, context_length=19, head_dim=4)
    model = MiniGPT(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.mul(8).to(torch.float16).float() if weight.dim() == 2 else weight)
        ids = torch.randint(11, (1, 19))
        expected = model(ids)[0]
    state = model.state_dict()
    facts = {"config": vars(config), "tensors": [[key, tensor.numel()] for key, tensor in state.items()]}
    halves = torch.cat([tensor.flatten() for tensor in state.values()]).to(torch.float16)
    found = page.evaluate(
        """([facts, bits, ids]) => {
          const view = new DataView(Uint16Array.from(bits).buffer);
          const model = new nextToken.engine.Model(facts, view), cache = new nextToken.engine.Cache(facts.config);
          return ids.map((id) => Array.from(model.forward(id, cache)));
        }""",
        [facts, [bits & 0xFFFF for bits in halves.view(torch.int16).tolist()], ids[0].tolist()],
    )
    assert (torch.tensor(found) - expected).abs().max() < 1e-4
