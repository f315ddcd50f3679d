"""The generation loop: without a cache as the oracle, with one as the real thing. Chapters 01 and 08.

Dimension key: B rows, P prompt columns, N new tokens, V vocabulary.
"""

import numbers
from dataclasses import dataclass

import torch

from minigpt.kv_cache import KVCache
from minigpt.processors import check_logits
from minigpt.sampling import SamplingParams, Uniforms, apply, bind, draw


@dataclass(frozen=True)
class Step:
    """What one forward pass gave.

    Args:
        token_ids: the chosen tokens, (B,); padding in rows that had finished before.
        logprobs: the model's own log-probability of each, (B,), before any processor; 0 for padding.
        logits: the model's own logits of this step, (B, V).
        finish_reasons: for each row `"eos"`, `"length"`, `"context"`, or `None` while it goes on.
        forward_tokens: tokens that went through the model in this pass, B·T.
    """

    token_ids: torch.Tensor
    logprobs: torch.Tensor
    logits: torch.Tensor
    finish_reasons: tuple
    forward_tokens: int


@dataclass(frozen=True)
class Generation:
    """A finished generation.

    Args:
        token_ids: prompt and answer, (B, P + N).
        new_token_ids: the answer, (B, N), padded on the right where a row finished early.
        finish_reasons: for each row `"eos"`, `"length"` or `"context"`.
        logprobs: the model's own log-probability of each new token, (B, N); 0 for padding.
        forward_tokens: tokens that went through the model, the sum of B·T over its calls.
    """

    token_ids: torch.Tensor
    new_token_ids: torch.Tensor
    finish_reasons: tuple
    logprobs: torch.Tensor
    forward_tokens: int


def generate(model, token_ids, *, cache=None, **settings):
    """Generate with a KV cache: N new tokens cost N forward passes, each after the first of one token a row.

    Args:
        model: a `MiniGPT`, or anything with `.config` and its `forward`.
        token_ids: the whole text so far, (B, P) int64; with a used `cache` its first `cache.length` columns count as
            processed.
        cache: a `KVCache` to go on with (several turns); `None` makes one that fits.
        **settings: the settings of a `Request`; `max_new_tokens` is required.

    Returns:
        A `Generation`. No row grows past `context_length`: it stops there with reason `"context"`.

    Raises:
        ValueError: what `Request` refuses, a cache that does not fit, logits that hold NaN or leave no token.
    """
    request = Request(model, token_ids, **settings)
    return request.collect(_steps(request, request.fitting(cache)))


def generate_naive(model, token_ids, **settings):
    """Generate by running the whole text through the model for every token: the oracle for every faster path.

    Arguments and result are those of `generate`, without the cache.
    """
    request = Request(model, token_ids, **settings)
    return request.collect(_steps(request, cache=None))


def stream(model, token_ids, *, cache=None, **settings):
    """Yield one `Step` a forward pass; the arguments are those of `generate`, which only collects the steps."""
    request = Request(model, token_ids, **settings)
    return _steps(request, request.fitting(cache))


def _steps(request, cache):
    """The loop: forward, last position, pick, append, until every row has a reason to stop."""
    new = request.token_ids if cache is None else request.token_ids[:, cache.length :]
    while None in request.finish_reasons:
        with torch.no_grad():
            logits = request.model(new, cache, attention_mask=request.attention_mask, num_logits=1)
        yield request.step(logits[:, -1], new.numel())
        new = request.token_ids if cache is None else request.token_ids[:, -1:]


class Request:
    """The state of one generation: the text of each row, how to choose its next token, and why it stopped.

    Args:
        model: the model, for its `config`.
        token_ids: prompts, (B, P) int64.
        max_new_tokens: most tokens to add a row, at least 0.
        params: `SamplingParams`, one for all rows, or a sequence with one a row, each then a request of its own.
        processors: callables that run before the pipeline of `params`, such as a grammar's mask.
        eos_token_id: the token that ends a row, or several; `None` is none.
        pad_token_id: what finished rows emit; default the first of `eos_token_id`.
        attention_mask: (B, P) bool, `False` where a prompt is padded, on the left.

    Raises:
        ValueError: an empty prompt, one longer than `context_length`, ids outside the vocabulary, settings of the
            wrong number, a negative `max_new_tokens`.
    """

    def __init__(
        self,
        model,
        token_ids,
        *,
        max_new_tokens,
        params=SamplingParams(),  # noqa: B008 (frozen)
        processors=(),
        eos_token_id=None,
        pad_token_id=None,
        attention_mask=None,
    ):
        if token_ids.dim() != 2 or token_ids.numel() == 0:
            raise ValueError(f"token_ids has shape {tuple(token_ids.shape)}: give (B, P) with at least one token a row")
        if not isinstance(max_new_tokens, numbers.Integral) or max_new_tokens < 0:
            raise ValueError(f"max_new_tokens={max_new_tokens!r} must be an integer, at least 0")
        if attention_mask is not None and attention_mask.shape != token_ids.shape:
            shape = tuple(attention_mask.shape)
            raise ValueError(f"attention_mask has shape {shape}: give that of token_ids, {tuple(token_ids.shape)}")
        self.model, self.token_ids, self.attention_mask = model, token_ids, attention_mask
        self.max_new_tokens = max_new_tokens
        self.num_prompt_tokens = token_ids.size(1)
        self.processors = bind(processors, self.num_prompt_tokens, attention_mask)
        self._read_lengths()
        self._read_params(params)
        self.eos_token_ids = _as_ids(eos_token_id)
        self.pad_token_id = pad_token_id if pad_token_id is not None else (*self.eos_token_ids, 0)[0]
        for i in (*self.eos_token_ids, self.pad_token_id):
            if not 0 <= i < model.config.vocab_size:
                raise ValueError(
                    f"token id {i} (EOS or padding) is outside the vocabulary of {model.config.vocab_size}"
                )

    def _read_lengths(self):
        B, P = self.token_ids.shape
        limit = self.model.config.context_length
        self.lengths = torch.full((B,), P) if self.attention_mask is None else self.attention_mask.long().sum(1)
        longest = int(self.lengths.max())
        if longest > limit:
            raise ValueError(f"the prompt has {longest} tokens, context_length is {limit}: shorten it")
        self.num_new_tokens = 0
        self.finish_reasons = tuple(map(self._limit_reached, self.lengths.tolist()))

    def _read_params(self, params):
        B = len(self.token_ids)
        one = isinstance(params, SamplingParams)
        rows = [params] * B if one else list(params)
        if len(rows) != B:
            raise ValueError(f"{len(rows)} params for {B} rows: give one SamplingParams for all, or one a row")
        self.uniforms = Uniforms([p.seed for p in rows], range(B) if one else [0] * B)
        self._params, self._prompt_mask = rows, self.attention_mask
        self._group()

    def _group(self):
        """Rows that run on and share their settings go through one pipeline together, finished rows through none."""
        groups, mask = {}, self._prompt_mask
        for row, p in enumerate(self._params):
            if self.finish_reasons[row] is None:
                groups.setdefault(p, []).append(row)
        self._groups = []
        for p, rows in groups.items():
            bound = bind(p.pipeline(), self.num_prompt_tokens, None if mask is None else mask[rows])
            self._groups.append((p.is_greedy, rows, bound))

    def fitting(self, cache):
        """The cache to use: a new one that fits, or the given one once it is seen to fit."""
        B, P = self.token_ids.shape
        room = self.model.config.context_length - int(self.lengths.min())
        capacity = max(1, P + min(self.max_new_tokens, room) - 1)  # the last token is never fed back
        if cache is None:
            return KVCache(self.model.config, B, capacity)
        if cache.batch_size != B or cache.length >= P:
            raise ValueError(
                f"a cache of {cache.batch_size} rows holding {cache.length} tokens does not fit {B} rows of {P}: "
                "token_ids is the whole text, with at least one token the cache has not seen; or reset() it"
            )
        if cache.capacity < capacity:
            raise ValueError(f"the cache has capacity={cache.capacity}, this request needs {capacity}: make it larger")
        return cache

    def step(self, logits, forward_tokens):
        """Choose the next token of each row from logits (B, V), append it, and say so in a `Step`."""
        logits = check_logits(logits)
        processed = apply(self.processors, self.token_ids, logits)
        uniforms = self.uniforms.next()
        chosen = torch.full((len(logits),), self.pad_token_id)
        for is_greedy, rows, pipeline in self._groups:
            z = apply(pipeline, self.token_ids[rows], processed[rows])
            chosen[rows] = check_logits(z).argmax(-1) if is_greedy else draw(z, uniforms[rows])
        running = torch.tensor([reason is None for reason in self.finish_reasons])
        logprobs = logits.log_softmax(-1).gather(1, chosen[:, None]).squeeze(1).masked_fill(~running, 0)
        self._append(chosen, running)
        return Step(chosen, logprobs, logits, self.finish_reasons, forward_tokens)

    def _append(self, chosen, running):
        self.token_ids = torch.cat((self.token_ids, chosen[:, None]), 1)
        self.lengths += running
        self.num_new_tokens += 1
        if self.attention_mask is not None:
            # A finished row becomes a text of one padding token, so that it never runs past the context.
            kept = self.attention_mask & running[:, None]
            self.attention_mask = torch.cat((kept, torch.ones_like(kept[:, :1])), 1)
        before = self.finish_reasons
        self.finish_reasons = tuple(
            reason or ("eos" if i in self.eos_token_ids else self._limit_reached(length))
            for reason, i, length in zip(before, chosen.tolist(), self.lengths.tolist(), strict=True)
        )
        if self.finish_reasons != before:
            self._group()

    def _limit_reached(self, length):
        if self.num_new_tokens >= self.max_new_tokens:
            return "length"
        return "context" if length >= self.model.config.context_length else None

    def collect(self, steps):
        """Run the steps to their end and gather them into a `Generation`."""
        steps = list(steps)
        logprobs = [step.logprobs for step in steps]
        return Generation(
            self.token_ids,
            self.token_ids[:, self.num_prompt_tokens :],
            self.finish_reasons,
            torch.stack(logprobs, 1) if steps else torch.empty(len(self.token_ids), 0),
            sum(step.forward_tokens for step in steps),
        )


def _as_ids(eos_token_id):
    if eos_token_id is None:
        return ()
    return (eos_token_id,) if isinstance(eos_token_id, numbers.Integral) else tuple(eos_token_id)


def token_log_probs(model, token_ids, attention_mask=None):
    """Log-probability of each token given those before it; `exp` of minus their mean is the perplexity.

    Args:
        model: a `MiniGPT`.
        token_ids: texts, (B, P) int64, P at least 2.
        attention_mask: (B, P) bool, `False` where a row is padded, on the left.

    Returns:
        (B, P − 1), in nats: entry j belongs to token j + 1. Padding and a row's first real token, which nothing
        precedes, get 0.

    Raises:
        ValueError: texts of one token; logits that hold NaN; what the model refuses.
    """
    if token_ids.dim() != 2 or token_ids.size(1) < 2:
        raise ValueError(f"token_ids has shape {tuple(token_ids.shape)}: the first token has no probability, give two")
    with torch.no_grad():
        logits = model(token_ids, attention_mask=attention_mask)[:, :-1]
    logits = check_logits(logits.flatten(0, 1)).view_as(logits)
    log_probs = logits.log_softmax(-1).gather(-1, token_ids[:, 1:, None]).squeeze(-1)
    return log_probs if attention_mask is None else log_probs.masked_fill(~attention_mask[:, :-1].bool(), 0)


def stream_text(steps, tokenizer, stop=()):
    """Turn the steps of one row into pieces of text, as they can be shown.

    A piece never breaks a character, though a token may; and nothing that could be the beginning of a stop string is
    shown until it is clear that it is none.

    Args:
        steps: `Step`s of one row, as from `stream`.
        tokenizer: the model's tokenizer.
        stop: a string that ends the text, or several; they may straddle tokens and are not shown.

    Yields:
        Non-empty strings; joined they are the text up to EOS or the first stop string.

    Raises:
        ValueError: an empty stop string.
    """
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stop:
        raise ValueError("stop='' would end every text at once: give at least one character, or leave it out")
    decode, held = tokenizer.decoder(), ""
    for step in steps:
        if step.finish_reasons[0] != "eos":
            held += decode(int(step.token_ids[0]))
        found = [held.index(s) for s in stop if s in held]
        if found:
            held = held[: min(found)]
            break
        safe = len(held) - max((_overlap(held, s) for s in stop), default=0)
        if safe:
            yield held[:safe]
        held = held[safe:]
    if held:
        yield held


def _overlap(text, stop):
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop)), 0, -1) if text.endswith(stop[:n])), 0)
