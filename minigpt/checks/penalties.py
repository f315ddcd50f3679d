"""Checkers of chapter 04, penalties."""

import torch

from minigpt.processors import FrequencyPenalty, NoRepeatNGram, PresencePenalty, RepetitionPenalty

# The first exercise: prompt "0 1", answer "2 2 3", and the logits of five tokens after it.
TEXT, PROMPT_LENGTH, LOGITS = [0, 1, 2, 2, 3], 2, [2.0, -1.0, 3.0, 0.5, 1.0]
_RULES = {
    "repetition 2": (
        RepetitionPenalty(2.0),
        "every token of prompt and answer, once, divided above 0, multiplied below",
    ),
    "frequency 0.5": (FrequencyPenalty(0.5), "0.5 for each time that the answer, and only the answer, has the token"),
    "presence 0.5": (PresencePenalty(0.5), "0.5 once for a token of the answer, however often it stands there"),
    "no repeated 1-gram": (NoRepeatNGram(1), "an n-gram of one token: nothing that stands in the text may come again"),
}


def check_by_hand(answer):
    """Check the penalised logits of the first exercise.

    Args:
        answer: name of the penalty → five logits.

    Raises:
        AssertionError: a number is wrong; the message says which and why.
    """
    for name, (rule, reason) in _RULES.items():
        assert name in answer and answer[name] is not ..., f"give the five logits under {name}"
        right = rule.bind(PROMPT_LENGTH)(torch.tensor([TEXT]), torch.tensor([LOGITS]))[0].tolist()
        assert len(answer[name]) == 5, f"{name}: five tokens have five logits, you gave {len(answer[name])}"
        for i, (said, value) in enumerate(zip(answer[name], right, strict=True)):
            assert said == value, f"{name}, token {i}: {said} is not it. It takes {reason}"
    print("Right, all twenty: each penalty touched other tokens.")


def check_breaking_theta(answer, token_ids, logits):
    """Check the smallest θ under which the favourite is another token.

    Args:
        answer: θ.
        token_ids: the text so far, (1, S).
        logits: what the model says after it, (1, V).

    Raises:
        AssertionError: the favourite stays, or a clearly smaller θ would do; the message says which way to go.
    """
    assert isinstance(answer, int | float) and answer > 0, f"θ is a number above 0: {answer!r} is none"
    first = int(logits.argmax())

    def breaks(theta):
        return int(RepetitionPenalty(float(theta))(token_ids, logits).argmax()) != first

    assert breaks(answer), f"with θ={answer} token {first} is still the likeliest: it takes more"
    assert not breaks(answer - 0.002), f"θ={answer} is enough, but θ={answer - 0.002:.4f} is too: look for the edge"
    print(f"Right: at θ={answer:.4f} the favourite changes, a little below it does not.")


def check_repetition_penalty(answer):
    """Check a repetition penalty of the reader's own.

    Args:
        answer: a function `(token_ids (B, S), logits (B, V), theta, attention_mask (B, S)) -> logits (B, V)`.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    logits = torch.tensor([[-1.0, -2.0, 1.0, 4.0], [2.0, 0.0, -torch.inf, 1.0]])
    ids, mask = torch.tensor([[0, 2, 2], [1, 0, 0]]), torch.ones(2, 3, dtype=torch.bool)
    before = logits.clone()
    z = answer(ids, logits, 2.0, mask)
    assert torch.equal(logits, before), "leave the logits you were given as they are"
    assert isinstance(z, torch.Tensor) and z.shape == logits.shape, f"return logits of shape {tuple(logits.shape)}"
    assert z[0, 0] != -0.5, "token 0 had −1 and now has −0.5: dividing a negative logit rewards it"
    assert z[0, 2] != 0.25, "token 2 stands twice in the text and was penalised twice: once a token is enough"
    assert z[0, 3] == 4, "token 3 of row 0 is not in the text: leave it alone"
    assert z[0, 1] == -2, "a row is penalised for its own text, not for its neighbour's"
    assert torch.equal(z, RepetitionPenalty(2.0)(ids, logits)), (
        f"row 0 must become [-2, -2, .5, 4], not {z[0].tolist()}"
    )
    mask[1, 0] = False
    z = answer(ids, logits + 1, 2.0, mask)
    assert z[1, 1] == 1, "token 1 of row 1 is padding there (attention_mask is False): padding never counts"
    assert torch.equal(answer(ids, logits, 1.0, mask), logits), "θ = 1 must change nothing"
    print("Right: by sign, once a token, each row by itself, and padding never counts.")


def check_no_repeat(answer):
    """Check a no-repeat n-gram rule of the reader's own.

    Args:
        answer: a function `(token_ids, n) -> set of banned ids`, for one text as a list.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    cases = [
        ([1, 2, 3, 1, 2], 3, {3}, "“1 2” stood before “3”"),
        ([1, 2, 1, 3, 1], 2, {2, 3}, "“1” was followed by 2 and by 3: both are banned"),
        ([1, 1], 2, {1}, "“1 1” stands there already, overlapping with itself"),
        ([4, 5], 1, {4, 5}, "with n = 1 every token of the text is banned"),
        ([1, 2], 3, set(), "two tokens hold no 3-gram: nothing can be repeated"),
        ([1, 2, 3], 3, set(), "“2 3” stands only at the end: nothing follows it yet"),
        ([], 2, set(), "an empty text bans nothing"),
    ]
    for ids, n, right, reason in cases:
        banned = answer(list(ids), n)
        assert banned is not None, "return the set of banned ids"
        assert set(banned) == right, f"text {ids}, n = {n}: banned {sorted(banned)}, not {sorted(right)}: {reason}"
    text = torch.randint(4, (60,), generator=torch.Generator().manual_seed(0))
    for n in (1, 2, 3, 4):
        z = NoRepeatNGram(n)(text[None], torch.zeros(1, 4))[0]
        right = set((z == -torch.inf).nonzero().flatten().tolist())
        assert set(answer(text.tolist(), n)) == right, f"a text of 60 tokens, n = {n}: {sorted(right)} are banned"
    print("Right: every token that would complete an n-gram for a second time is banned, and no other.")
