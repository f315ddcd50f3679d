"""Checkers of chapter 09, what generation costs."""

from minigpt.costs import decode_flops, decode_read_bytes, generation_flops, roofline_s
from minigpt.shapes import GPUS, MODELS

STEP = {  # Llama-2-7B, 1,000 keys, 16 bits: right value, what people slip on
    "linear": (lambda f, b: f.linear / 1e9, "every weight is used for a multiply and an add: 2 FLOPs"),
    "attention": (
        lambda f, b: f.attention / 1e9,
        "4 · L · H · D for each of the 1,000 keys, in FLOPs, not multiply-adds",
    ),
    "head": (lambda f, b: f.head / 1e9, "the head is a matrix like the others: 2 FLOPs a weight"),
    "GB": (
        lambda f, b: b / 1e9,
        "2 bytes a weight, head included, and keys *and* values of 1,000 tokens at 2 bytes each",
    ),
}


def check_step(answer):
    """Check FLOPs and bytes of one decode step of Llama-2-7B that sees 1,000 keys, to 2.5 %.

    Args:
        answer: `{"linear": GFLOP, "attention": GFLOP, "head": GFLOP, "GB": bytes read / 1e9, in 16 bits}`.

    Raises:
        AssertionError: an entry is missing or wrong; the message says which and why.
    """
    shape = MODELS["Llama-2-7B"]
    flops, n_bytes = decode_flops(shape, 1000), decode_read_bytes(shape, 1000, weight_bits=16, kv_bits=16)
    for name, (value, why) in STEP.items():
        given, right = answer.get(name), value(flops, n_bytes)
        assert given is not None and given is not ..., f"{name!r} is still open"
        assert abs(given - right) <= 0.025 * right, f"{name!r} is not {given:.4g}: {why}"
    print("All four are right. At this length attention is a small part.")


def check_hundred(answer):
    """Check how many tokens GPT-2 small must write after 100 until a cache saves a factor of 100 in all FLOPs.

    Args:
        answer: the smallest number of new tokens, N.

    Raises:
        AssertionError: it is another one; the message has the factor.
    """

    def saved(N):
        runs = [generation_flops(MODELS["GPT-2 small"], 100, N, cached=c, convention="full") for c in (False, True)]
        return runs[0].total / runs[1].total

    assert isinstance(answer, int) and answer > 0, "say a whole number of new tokens, at least 1"
    assert saved(answer) >= 100, f"with {answer} new tokens the factor is {saved(answer):.1f}: more are needed"
    smaller = answer - 1
    assert answer == 1 or saved(smaller) < 100, f"{smaller} new tokens already give {saved(smaller):.1f}: go lower"
    print(f"Right: {answer} new tokens make a text of {100 + answer}, within its context of 1,024.")


def check_best(answer):
    """Check a bound on the speed of decoding of the reader's own.

    Args:
        answer: a function `(shape, S, B, weight_bits, kv_bits, gpu) -> tokens per second of all rows`.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    for name, S, B, weight_bits, kv_bits in (
        ("Llama-3-8B", 1, 1, 16, 16),
        ("Llama-3-8B", 1, 4096, 16, 16),  # compute-bound
        ("Llama-3-8B", 8192, 64, 16, 8),  # most of it cache
        ("SmolLM2-135M", 2048, 16, 4, 16),
    ):
        shape, gpu = MODELS[name], GPUS["H100"]
        given = answer(shape, S, B, weight_bits, kv_bits, gpu)
        assert isinstance(given, (int, float)), f"the function must return a number, not {given!r}"
        n_bytes = decode_read_bytes(shape, S, B, weight_bits=weight_bits, kv_bits=kv_bits)
        flops = B * decode_flops(shape, S).total
        right = B / roofline_s(flops, n_bytes, flops_per_s=gpu.flops_per_s, bytes_per_s=gpu.bytes_per_s)
        case = f"{name} on an H100, S = {S:,}, B = {B:,}"
        hints = {
            B / (flops / gpu.flops_per_s): "the bytes are missing: the step lasts as long as the *longer* of the two",
            B / (n_bytes / gpu.bytes_per_s): "the FLOPs are missing: the step lasts as long as the *longer* of the two",
            right / B: "that is one row's speed: all B rows get a token in a step",
            B / (flops / gpu.flops_per_s + n_bytes / gpu.bytes_per_s): "reading and computing overlap: take the longer",
        }
        near = [hint for value, hint in hints.items() if abs(given - value) <= 1e-3 * value and value != right]
        assert abs(given - right) <= 1e-3 * right, f"{case}: not {given:,.0f} tokens/s. " + (near or [""])[0]
    print("Right. Many rows with full caches stay memory-bound.")
