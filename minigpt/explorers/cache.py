"""The attention grid, pass by pass, without a KV cache and with one. Chapter 08."""

from traitlets import Int, validate

from minigpt.explorers.base import Explorer, check_between

MOST, LONGEST = 12, 100_000
SIZES = {
    "prompt": "tokens of the prompt",
    "new_tokens": "tokens to generate",
    "window": "keys a query sees",
    "chunk": "tokens of the prompt in one pass",
}
WORK, AGAIN, PAST, NONE = "#/. "  # how a cell of the still picture is marked
TEXT = {
    "label": "Query (down) and key (across) of every token, without a cache and with one",
    "sides": ("without a cache", "with a cache"),
    "marks": {WORK: "new work", AGAIN: "done before, done again", PAST: "done in an earlier pass"},
}


class CacheExplorer(Explorer):
    """Which pairs of query and key each forward pass computes, without a cache and with one, and what that adds up to.

    Args:
        prompt: tokens of the prompt, P, 1 to 12.
        new_tokens: tokens to generate, N, 1 to 12.
        window: keys that a query sees, its own included, 1 to 12; `None` is all before it.
        chunk: most tokens of the prompt in one pass of the cached side, 1 to 12; `None` is all of them.
        step: the pass shown first, from 1; beyond the last one it is the last.
        long_prompt, long_new: lengths that are counted without a grid, 1 to 100,000.

    Raises:
        ValueError: a number outside its range.
    """

    name = "cache"
    scripts = ("cachework.js",)
    prompt = Int(6).tag(sync=True)
    new_tokens = Int(6).tag(sync=True)
    window = Int(None, allow_none=True).tag(sync=True)
    chunk = Int(None, allow_none=True).tag(sync=True)
    step = Int(4).tag(sync=True)
    long_prompt = Int(183).tag(sync=True)
    long_new = Int(64).tag(sync=True)

    @validate(*SIZES)
    def _check_size(self, proposal):
        name, value = proposal.trait.name, proposal.value
        if value is not None and not 1 <= value <= MOST:
            off = "; None is off" if name in ("window", "chunk") else ""
            raise ValueError(f"{name}={value} must be in 1 to {MOST} ({SIZES[name]}, few enough to draw){off}")
        return value

    @validate("long_prompt", "long_new")
    def _check_long(self, proposal):
        return check_between(proposal, 1, LONGEST)

    @validate("step")
    def _check_step(self, proposal):
        if proposal.value < 1:
            raise ValueError(f"step={proposal.value} must be at least 1: passes are counted from 1")
        return proposal.value

    def picture(self):
        """The two grids of the pass shown, each a list of strings, a character a pair: `#` new, `/` again, `.` past."""
        P, size = self.prompt, min(self.chunk or self.prompt, self.prompt)
        chunks = -(-P // size)
        step = min(self.step, chunks + self.new_tokens - 1) - 1
        start, end = (
            (step * size, min(P, (step + 1) * size)) if step < chunks else (P + step - chunks, P + step - chunks + 1)
        )
        again = end - 1 if step >= chunks else 0
        naive = [AGAIN] * again + [WORK] * (end - again) if step >= chunks - 1 else []
        cached = [PAST] * start + [WORK] * (end - start)
        return [[self._row(i, mark) for i, mark in enumerate(marks)] for marks in (naive, cached)]

    def _row(self, i, mark):
        """One query's row of a grid."""
        n = self.prompt + self.new_tokens
        first = max(0, i + 1 - (self.window or n))
        return NONE * first + mark * (i + 1 - first) + NONE * (n - i - 1)

    def still(self):
        """The two grids as an SVG."""
        return draw_grids(self.picture(), self.prompt + self.new_tokens)


def draw_grids(grids, n, cell=12):
    """Grids of n tokens, as `CacheExplorer.picture` gives them, side by side in an SVG."""
    looks = {
        WORK: 'fill="currentColor"',
        AGAIN: 'fill="none" stroke="currentColor"',
        PAST: 'fill="none" stroke="currentColor" stroke-dasharray="1 3"',
    }
    pitch, marks = max(n * cell, 150) + 30, []
    for side, (name, rows) in enumerate(zip(TEXT["sides"], grids, strict=True)):
        marks.append(f'<text x="{side * pitch}" y="12">{name}</text>')
        for i, row in enumerate(rows):
            for j, mark in enumerate(row):
                if mark != NONE:
                    x, y = side * pitch + j * cell + 1, 20 + i * cell + 1
                    marks.append(f'<rect x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" {looks[mark]}/>')
    for k, (mark, meaning) in enumerate(TEXT["marks"].items()):
        y = 30 + n * cell + 18 * k
        marks.append(
            f'<rect x="1" y="{y}" width="10" height="10" {looks[mark]}/><text x="18" y="{y + 10}">{meaning}</text>'
        )
    size = f'viewBox="0 0 {2 * pitch} {n * cell + 84}" width="{2 * pitch}"'
    return (
        f'<svg role="img" aria-label="{TEXT["label"]}" {size} font-size="13" fill="currentColor">{"".join(marks)}</svg>'
    )
