"""Checkers of chapter 01, the generation loop."""

import math

import torch

from minigpt.config import GPTConfig
from minigpt.generation import generate, generate_naive, stream
from minigpt.sampling import SamplingParams

_GREEDY = SamplingParams(temperature=0)


class _Model:
    """A model that is a function: `rule(window (S,))` gives the logits after a text.

    Args:
        rule: logits (V,) of the token after a list of ids.
        vocab_size: V.
        context_length: of its `config`; a longer text is refused, as `MiniGPT` refuses it.
    """

    def __init__(self, rule, vocab_size, context_length=64):
        self.rule = rule
        self.config = GPTConfig(vocab_size, 1, 1, 1, d_model=2, d_ff=1, context_length=context_length)

    def __call__(self, token_ids, cache=None, *, attention_mask=None, num_logits=None):
        limit = self.config.context_length
        if token_ids.size(1) > limit:
            raise ValueError(f"{token_ids.size(1)} tokens are past context_length={limit}")
        if cache is not None:
            cache.advance(token_ids.size(1))
        logits = [torch.stack([self.rule(row[: i + 1]) for i in range(len(row))]) for row in token_ids.tolist()]
        return torch.stack(logits)[:, -(num_logits or token_ids.size(1)) :]


def check_work(answer):
    """Check predictions about a batch of two rows, prompts of 4 tokens, rows that end after 3 and 6 new tokens.

    Args:
        answer: `{"forwards": n, "padding": n, "naive tokens": n, "cached tokens": n}`.

    Raises:
        AssertionError: a number is wrong; the message says which and why.
    """
    reasons = {
        "forwards": "the loop goes on while any row does, one forward a new token; the last token is never fed back",
        "padding": "a finished row emits padding until the longest row has finished",
        "naive tokens": "each forward takes the whole text so far, of both rows",
        "cached tokens": "the first forward takes the prompts, each later one a single token a row",
    }
    truth = _work_of_two_rows()
    for name, reason in reasons.items():
        assert name in answer, f"say how many {name!r} you expect"
        assert answer[name] == truth[name], f"{name}: {answer[name]} is not it. Think again: {reason}"
    print(f"All four are right: {truth['forwards']} forwards, and the slower row decides them.")


def _work_of_two_rows():
    # A model that counts down: row 0 says 2 1 0, row 1 says 5 4 3 2 1 0, and 0 is EOS.
    model = _Model(lambda text: torch.eye(7)[max(0, text[-1] - 1)], vocab_size=7)
    prompts = torch.tensor([[3] * 4, [6] * 4])
    settings = {"max_new_tokens": 10, "params": _GREEDY, "eos_token_id": 0}
    result = generate(model, prompts, **settings)
    return {
        "forwards": sum(1 for _ in stream(model, prompts, **settings)),
        "padding": int((result.new_token_ids[0] == 0).sum()) - 1,
        "naive tokens": generate_naive(model, prompts, **settings).forward_tokens,
        "cached tokens": result.forward_tokens,
    }


def check_write_on(write_on):
    """Check a greedy loop that goes past the context: each step sees the last `context_length` tokens only.

    Args:
        write_on: `write_on(model, token_ids (B, P), max_new_tokens) -> (B, P + max_new_tokens)`.

    Raises:
        AssertionError: the text is cut short, or the model was shown something else; the message says which.
    """
    limit = 5

    def rule(text):  # depends on every token of the window and on its place in it
        return torch.eye(11)[sum((i + 1) * token for i, token in enumerate(text)) % 11]

    model = _Model(rule, vocab_size=11, context_length=limit)
    for P, N in ((2, 9), (5, 4), (8, 3)):
        expected = prompt = [[3, 1, 4, 1, 5, 9, 2, 6][:P], [2, 7, 1, 8, 2, 8, 1, 8][:P]]
        for _ in range(N):
            expected = [row + [int(rule(row[-limit:]).argmax())] for row in expected]
        try:
            answer = write_on(model, torch.tensor(prompt), N).tolist()
        except ValueError as error:
            raise AssertionError(f"the model was shown too much ({error}): give it the last tokens only") from None
        lengths = f"a prompt of {P} and {N} new tokens"
        assert len(answer[0]) == P + N, (
            f"{lengths} make a text of {P + N}, yours has {len(answer[0])}: cut what the model sees, not the result"
        )
        assert answer == expected, (
            f"with {lengths} and a context of {limit} the text comes out different: the model must see the last "
            f"{limit} tokens, all of them, and nothing else"
        )
    print("Right: the text grows without end, and the model sees a window that slides along it.")


def check_answer_log_prob(answer_log_prob):
    """Check a function that gives the log-probability of an answer after a prompt.

    Args:
        answer_log_prob: `answer_log_prob(model, prompt_ids, answer_ids) -> float`, ids as lists.

    Raises:
        AssertionError: the number is off; the message guesses the slip from it.
    """
    table = torch.randn(9, 9, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    model = _Model(lambda seen: table[seen[-1]], vocab_size=9)
    for prompt, answer in (([3, 1, 4], [1, 5]), ([2, 7], [1, 8, 2, 8]), ([6], [2])):
        text = prompt + answer
        each = [float(table[a, b]) for a, b in zip(text, text[1:], strict=False)]
        P, right = len(prompt), sum(each[len(prompt) - 1 :])
        given = float(answer_log_prob(model, prompt, answer))
        slips = {
            -right: "log-probabilities are never positive: leave the sign as it is",
            sum(each): "the prompt is given, so its own tokens do not count",
            sum(each[P:]): "the answer's first token is missing: entry j of token_log_probs belongs to token j + 1",
            sum(each[P - 2 :]): "the prompt's last token is in it: entry j of token_log_probs belongs to token j + 1",
            right / len(answer): "that is a mean: the chain rule adds up",
        }
        for wrong, message in slips.items():
            slipped = math.isclose(given, wrong, rel_tol=1e-4) and not math.isclose(wrong, right, rel_tol=1e-4)
            assert not slipped, f"{given:.4f} for prompt {prompt}, answer {answer}: {message}"
        assert math.isclose(given, right, rel_tol=1e-4), (
            f"prompt {prompt}, answer {answer}: it gives {given:.4f}, and {right:.4f} is right. Score the whole text "
            "with token_log_probs and add up the last entries, one for each token of the answer"
        )
    print("Right: the prompt is given, and each token of the answer counts once.")


def check_hold_back(hold_back):
    """Check a generator that streams text up to a stop string and never shows a part of it.

    Args:
        hold_back: `hold_back(pieces, stop)`, yielding strings; `pieces` is an iterable of strings.

    Raises:
        AssertionError: text is missing, late, or should have been held; the message shows the pieces.
    """
    cases = (
        (["Hel", "lo ", "world"], "END", "Hello world"),
        (["yes", "EN", "D", "no"], "END", "yes"),
        (["a E", "N", "vy"], "END", "a ENvy"),
        (["one", "END two END"], "END", "one"),
        (["a", "a", "a", "b", "c"], "aab", "a"),
        (["so E", "N"], "END", "so EN"),
    )
    for pieces, stop, text in cases:
        shown, log = [], []

        def feed(pieces=pieces, shown=shown, log=log):
            for piece in pieces:
                log.append("".join(shown))  # what was out when this piece was asked for
                yield piece

        for piece in hold_back(feed(), stop):
            shown.append(piece)
        where = f"pieces {pieces} with stop {stop!r}"
        assert "".join(shown) == text, f"{where}: shown {''.join(shown)!r}, should be {text!r}"
        for i, out in enumerate(log):
            safe = _safe("".join(pieces[:i]), stop)
            assert len(out) <= len(safe), f"{where}: {out[len(safe) :]!r} was shown while it could still begin the stop"
            assert len(out) == len(safe), (
                f"{where}: {safe[len(out) :]!r} was safe before piece {i + 1}, and held too long"
            )
    print("Right: every safe character at once, and never a part of the stop string.")


def _safe(text, stop):
    """What of a text may be shown: all but the longest end that begins the stop string."""
    held = next((n for n in range(min(len(text), len(stop)), 0, -1) if text.endswith(stop[:n])), 0)
    return text[: len(text) - held]
