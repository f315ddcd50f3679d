"""Search: beams, diverse beams, and every text there is as their oracle. Chapter 06.

Beam search keeps the `num_beams` most probable unfinished texts of a prompt. Its rule is three small pure functions:
`candidates` ranks the continuations, `select` says which go on and which end, `is_done` when to stop. They follow
`transformers`' `generate`; the length penalty is that of Wu et al. 2016 (`gnmt`) or a power of the length.

Dimension key: B prompts, P prompt columns, K beams of one prompt, R all beams together, S columns so far, V vocabulary.
"""

import math
import numbers
from dataclasses import dataclass
from typing import NamedTuple

import torch

from minigpt.generation import Request
from minigpt.processors import check_logits
from minigpt.sampling import apply, bind

MOST_TEXTS = 1_000_000  # that exact_search will enumerate


@dataclass(frozen=True)
class Hypothesis:
    """A finished text.

    Args:
        token_ids: the new tokens, without the prompt, with EOS if that ended it.
        sum_log_prob: sum of their log-probabilities, in nats, as the processors left them.
        score: `sum_log_prob` over the length penalty of `len(token_ids)`.
        finish_reason: `"eos"`, `"length"` or `"context"`.
    """

    token_ids: tuple
    sum_log_prob: float
    score: float
    finish_reason: str


class Candidate(NamedTuple):
    """A continuation: sum of log-probs with the new token, which beam it continues, the new token."""

    sum_log_prob: float
    beam: int
    token_id: int


@dataclass(frozen=True)
class BeamStep:
    """What one step did to the beams of one prompt, or of one group of them.

    Args:
        row, group: whose beams.
        candidates: the continuations looked at, best first.
        kept: those that go on, best first; or would, if these beams were not done.
        ended: those that finished in this step, whether or not they are good enough to stay.
        finished: the best finished texts so far, best first, at most as many as there are beams.
        is_done: whether this was the last step of these beams.
    """

    row: int
    group: int
    candidates: tuple
    kept: tuple
    ended: tuple
    finished: tuple
    is_done: bool


def gnmt(alpha):
    """The length penalty ((5 + t) / 6)^α as a function of the length t, for an exponent α. Wu et al. 2016."""
    return lambda t: ((5 + t) / 6) ** alpha


def score_of(sum_log_prob, length, length_penalty):
    """Divide a sum of log-probs by the length penalty.

    Sums are negative, so a penalty that grows with the length brings longer texts nearer to 0: a larger exponent
    favours longer texts, 0 none.

    Args:
        sum_log_prob: in nats.
        length: t, new tokens including EOS, never the prompt; at least 1.
        length_penalty: a number α for t^α, or a function of t, such as `gnmt(0.6)`.

    Raises:
        ValueError: a penalty that is not a finite number above 0.
    """
    if not callable(length_penalty) and not isinstance(length_penalty, numbers.Real):
        raise ValueError(f"length_penalty={length_penalty!r} must be a number or a function of the length")
    try:
        divisor = length_penalty(length) if callable(length_penalty) else float(length) ** length_penalty
    except OverflowError:
        divisor = math.inf
    if not 0 < divisor < math.inf:
        raise ValueError(
            f"length_penalty={length_penalty} gives {divisor} at length {length}: it must be finite and above 0"
        )
    return sum_log_prob / divisor


def candidates(sums, log_probs, count):
    """The best continuations of all beams of one prompt.

    Args:
        sums: log-probability of each beam's text, K numbers.
        log_probs: of the next token, (K, V); `-inf` is never a candidate.
        count: how many.

    Returns:
        At most `count` `Candidate`s, by falling sum (float64); on a tie the lower beam, then the lower id.
    """
    totals = (torch.tensor(sums, dtype=torch.float64)[:, None] + log_probs).flatten()  # (K·V,)
    least = totals.topk(min(count, len(totals))).values[-1]
    index = ((totals >= least) & (totals > -torch.inf)).nonzero().squeeze(1)  # ties at the end are still all here
    best, order = totals[index].sort(descending=True, stable=True)
    V = log_probs.size(1)
    pairs = zip(best[:count].tolist(), index[order[:count]].tolist(), strict=True)
    return tuple(Candidate(total, i // V, i % V) for total, i in pairs)


def select(candidates, num_beams, eos_token_ids, is_last):
    """Which candidates go on as beams and which end here.

    The first `num_beams` candidates may end, by EOS or because this `is_last` step cuts them off; an EOS further down
    is dropped. The best `num_beams` without EOS go on, so that finished texts never take the place of live ones.

    Returns:
        kept, ended: tuples of candidates, best first.
    """
    ended = tuple(c for c in candidates[:num_beams] if is_last or c.token_id in eos_token_ids)
    kept = () if is_last else tuple(c for c in candidates if c.token_id not in eos_token_ids)[:num_beams]
    return kept, ended


def is_done(best_sum, length, max_length, finished_scores, num_beams, length_penalty, early_stopping):
    """Whether a prompt's beams can stop, because enough texts are finished and no beam can do better.

    Args:
        best_sum: sum of log-probs of the best beam.
        length: its new tokens so far.
        max_length: most new tokens it may reach.
        finished_scores: scores of the finished texts kept.
        num_beams: how many of them are enough.
        length_penalty: as in `score_of`.
        early_stopping: `True` stops as soon as there are enough; `False` compares the worst of them with the best
            beam's score at its present length, a heuristic; `"never"` with the best score it could have at any length
            up to `max_length`, as if all further tokens were certain: no better text is missed.
    """
    if len(finished_scores) < num_beams:
        return False
    if early_stopping is True:
        return True
    lengths = range(length, max_length + 1) if early_stopping == "never" else (length,)
    return max(score_of(best_sum, t, length_penalty) for t in lengths) <= min(finished_scores)


def beam_search(
    model,
    token_ids,
    *,
    num_beams,
    max_new_tokens,
    length_penalty=1.0,
    early_stopping=False,
    num_return_sequences=1,
    processors=(),
    eos_token_id=None,
    pad_token_id=None,
    attention_mask=None,
    use_cache=True,
):
    """Look for the most probable texts, `num_beams` at a time; every prompt is searched by itself.

    Processors get log-probabilities, as in `transformers`, and what they return is added up without making it sum to 1
    again. Rules that shift all logits of a row alike (`Temperature` does) then change the sums: end `processors` with
    `lambda token_ids, logits: logits.log_softmax(-1)` to undo that.

    Args:
        model: a `MiniGPT`, or anything with `.config` and its `forward`.
        token_ids: prompts, (B, P) int64.
        num_beams: K, at least 1; 1 is greedy search (but with `early_stopping="never"` it looks past an EOS).
        max_new_tokens: most tokens to add, EOS included, at least 0.
        length_penalty: α for a division by t^α, or a function of t; see `score_of`.
        early_stopping: `True`, `False` or `"never"`; see `is_done`.
        num_return_sequences: texts to return for each prompt, 1 to K.
        processors: callables `(token_ids (R, S), log_probs (R, V)) -> log_probs`.
        eos_token_id: the token that ends a text, or several; `None` is none.
        pad_token_id: accepted as in `generate`; results are not padded.
        attention_mask: (B, P) bool, `False` where a prompt is padded, on the left.
        use_cache: `False` runs the whole texts through the model at every step.

    Returns:
        For each prompt a list of `Hypothesis`, best score first; shorter than asked only where the rules leave fewer
        texts. A text of `max_new_tokens`, or one that fills the context, is cut off and scored like a finished one.

    Raises:
        ValueError: what `generate` refuses; more beams than texts; more texts asked for than beams; a length penalty
            that is no finite number above 0.
    """
    return diverse_beam_search(
        model,
        token_ids,
        num_beams=num_beams,
        num_groups=1,
        diversity_penalty=0.0,
        num_return_sequences=num_return_sequences,
        max_new_tokens=max_new_tokens,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        processors=processors,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        attention_mask=attention_mask,
        use_cache=use_cache,
    )


def diverse_beam_search(
    model, token_ids, *, num_beams, num_groups, diversity_penalty, num_return_sequences=1, **settings
):
    """Beam search in groups, each of which avoids the tokens that earlier groups chose at the same step.

    The penalty is λ for every beam of an earlier group that has just taken the token (Hamming diversity, Vijayakumar
    et al. 2018). As in `transformers` it is taken off the log-probability and stays in the sums and scores.

    Args:
        model, token_ids: as for `beam_search`.
        num_beams: K, of all groups together.
        num_groups: G, at least 1, a divisor of K. Each group has K / G beams and stops by itself.
        diversity_penalty: λ, in nats, at least 0; with 0 all groups find the same texts.
        num_return_sequences: 1 to K, the best of all groups together.
        **settings: as for `beam_search`; `max_new_tokens` is required.

    Returns:
        For each prompt a list of `Hypothesis`, best score first.

    Raises:
        ValueError: as `beam_search`; groups that do not divide the beams; λ negative or not finite.
    """
    groups = {"num_beams": num_beams, "num_groups": num_groups, "diversity_penalty": diversity_penalty}
    all_steps = beam_steps(model, token_ids, **groups, **settings)
    _check_count("num_return_sequences", num_return_sequences, num_beams, "num_beams: ask for fewer, or use more beams")
    results = [[] for _ in token_ids]
    for steps in all_steps:
        for step in steps:
            if step.is_done:
                results[step.row] += step.finished
    return [_best(found, num_return_sequences) for found in results]


def beam_steps(
    model,
    token_ids,
    *,
    num_beams,
    max_new_tokens,
    num_groups=1,
    diversity_penalty=0.0,
    length_penalty=1.0,
    early_stopping=False,
    processors=(),
    eos_token_id=None,
    pad_token_id=None,
    attention_mask=None,
    use_cache=True,
):
    """Yield the steps of `beam_search` or `diverse_beam_search`: for each forward pass a tuple of `BeamStep`.

    Arguments are theirs. There is one `BeamStep` for each prompt and group that is not done; a prompt that may not grow
    at all is done before the first pass.
    """
    request = Request(
        model,
        token_ids,
        max_new_tokens=max_new_tokens,
        processors=processors,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        attention_mask=attention_mask,
    )
    num_texts = _number_of_texts(request)
    _check_count("num_beams", num_beams, num_texts, f"as many texts as there are of {max_new_tokens} tokens")
    _check_count("num_groups", num_groups, num_beams, "num_beams")
    if num_beams % num_groups:
        raise ValueError(f"num_beams={num_beams} must be a multiple of num_groups={num_groups}: all groups are equal")
    if not (isinstance(diversity_penalty, numbers.Real) and 0 <= diversity_penalty < math.inf):
        raise ValueError(f"diversity_penalty={diversity_penalty!r} must be a finite number, at least 0; 0 is off")
    if not (isinstance(early_stopping, bool) or early_stopping == "never"):
        raise ValueError(f"early_stopping={early_stopping!r} must be True, False or 'never'")
    rule = {"num_beams": num_beams // num_groups, "length_penalty": length_penalty, "early_stopping": early_stopping}
    every = [_Beams(request, row, group, **rule) for row in range(len(token_ids)) for group in range(num_groups)]
    for length in sorted({1, *(beams.max_length for beams in every)} - {0}):
        score_of(-1.0, length, length_penalty)  # a useless penalty is told before the work
    return _steps(every, _Texts(request, use_cache), diversity_penalty)


def _steps(every, texts, diversity_penalty):
    """The loop: forward, then each prompt's groups in turn, until all are done."""
    if any(beams.is_done for beams in every):
        yield tuple(beams.report() for beams in every if beams.is_done)
    while live := [beams for beams in every if not beams.is_done]:
        log_probs = texts.log_probs()  # (R, V)
        taken = {beams.row: [] for beams in live}  # tokens just chosen by earlier groups of the same prompt
        for beams in live:
            own, others = log_probs[beams.place], taken[beams.row]
            if diversity_penalty and others:
                own = own - diversity_penalty * torch.bincount(torch.tensor(others), minlength=own.size(1))
            beams.step(own)
            others += beams.new_tokens()
        yield tuple(beams.report() for beams in live)
        texts.grow([beams for beams in live if not beams.is_done])


class _Beams:
    """The beams of one prompt, or of one group of them, and the texts they have finished."""

    def __init__(self, request, row, group, num_beams, length_penalty, early_stopping):
        self.row, self.group, self.num_beams = row, group, num_beams
        self.length_penalty, self.early_stopping = length_penalty, early_stopping
        self.eos_token_ids = request.eos_token_ids
        room = request.model.config.context_length - int(request.lengths[row])
        self.max_length = min(request.max_new_tokens, room)
        self.limit_reason = "length" if request.max_new_tokens <= room else "context"
        self.place = slice(row, row + 1)  # where these beams are among all texts
        self.new_token_ids, self.sums = [()], [0.0]
        self.candidates = self.kept = self.ended = ()
        self.is_done = self.max_length == 0
        self.finished = [Hypothesis((), 0.0, 0.0, self.limit_reason)] if self.is_done else []

    def step(self, log_probs):
        """Grow by one token, given the log-probabilities of the next one, (K, V)."""
        length = len(self.new_token_ids[0]) + 1
        count = max(2, 1 + len(self.eos_token_ids)) * self.num_beams  # enough, if all beams offer every EOS
        self.candidates = candidates(self.sums, log_probs, count)
        is_last = length == self.max_length
        self.kept, self.ended = select(self.candidates, self.num_beams, self.eos_token_ids, is_last)
        new = [self.hypothesis((*self.new_token_ids[c.beam], c.token_id), c.sum_log_prob) for c in self.ended]
        self.finished = _best(self.finished + new, self.num_beams)
        self.new_token_ids = [(*self.new_token_ids[c.beam], c.token_id) for c in self.kept]
        self.sums = [c.sum_log_prob for c in self.kept]
        self.is_done = not self.kept or is_done(
            self.sums[0],
            length,
            self.max_length,
            [h.score for h in self.finished],
            self.num_beams,
            self.length_penalty,
            self.early_stopping,
        )

    def new_tokens(self):
        """The tokens of the last step that made texts longer: EOS is none."""
        return [c.token_id for c in self.kept + self.ended if c.token_id not in self.eos_token_ids]

    def hypothesis(self, token_ids, sum_log_prob):
        """A finished text with its score and reason."""
        reason = "eos" if token_ids[-1] in self.eos_token_ids else self.limit_reason
        return Hypothesis(token_ids, sum_log_prob, score_of(sum_log_prob, len(token_ids), self.length_penalty), reason)

    def report(self):
        """The last step as a `BeamStep`."""
        finished = tuple(self.finished)
        return BeamStep(self.row, self.group, self.candidates, self.kept, self.ended, finished, self.is_done)


class _Texts:
    """The texts of all beams, R of them, in one batch: ids, cache, padding, and processors that know the padding."""

    def __init__(self, request, use_cache):
        self.request, self.token_ids = request, request.token_ids
        self.cache = request.fitting(None) if use_cache else None
        self.attention_mask, self.processors = request.attention_mask, request.processors
        self.rows = list(range(len(self.token_ids)))  # the prompt of each text

    def log_probs(self):
        """Log-probabilities of the next token, processed: (R, V)."""
        new = self.token_ids if self.cache is None else self.token_ids[:, self.cache.length :]
        with torch.no_grad():
            logits = self.request.model(new, self.cache, attention_mask=self.attention_mask, num_logits=1)[:, -1]
        log_probs = check_logits(logits).log_softmax(-1)
        return check_logits(apply(self.processors, self.token_ids, log_probs))

    def grow(self, live):
        """Put the kept candidates of the beams that are not done in the place of the texts they continue."""
        parents, tokens, rows = [], [], []
        for beams in live:
            parents += [beams.place.start + c.beam for c in beams.kept]
            tokens += [c.token_id for c in beams.kept]
            rows += [beams.row] * len(beams.kept)
            beams.place = slice(len(rows) - len(beams.kept), len(rows))
        if not live:
            return
        if self.cache is not None and parents != list(range(len(self.token_ids))):
            self.cache.reorder(parents)
        self.token_ids = torch.cat((self.token_ids[parents], torch.tensor(tokens)[:, None]), 1)  # (R, S + 1)
        padding = self.request.attention_mask
        if padding is not None:
            padding = padding[rows]
            new = torch.ones(len(rows), self.token_ids.size(1) - padding.size(1), dtype=torch.bool)
            self.attention_mask = torch.cat((padding.bool(), new), 1)
        if rows != self.rows:
            self.rows = rows
            self.processors = bind(self.request.processors, self.request.num_prompt_tokens, padding)


def _best(hypotheses, count):
    """The `count` best by score; of equals the one found first."""
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]


def exact_search(
    model,
    token_ids,
    *,
    max_new_tokens,
    length_penalty=1.0,
    num_return_sequences=1,
    processors=(),
    eos_token_id=None,
    attention_mask=None,
):
    """Score every text there is and return the best: the oracle of beam search, for tiny trees only.

    Arguments and result are those of `beam_search`. No cache, no pruning: level by level, all texts are run in full.

    Raises:
        ValueError: as `beam_search`; more than a million texts, V to the power of `max_new_tokens`.
    """
    request = Request(
        model, token_ids, max_new_tokens=max_new_tokens, eos_token_id=eos_token_id, attention_mask=attention_mask
    )
    if _number_of_texts(request) > MOST_TEXTS:
        raise ValueError(
            f"max_new_tokens={max_new_tokens} with a vocabulary of {model.config.vocab_size} makes more than "
            f"{MOST_TEXTS:,} texts: allow fewer tokens, or use beam_search"
        )
    _check_count("num_return_sequences", num_return_sequences, MOST_TEXTS, "the most this function enumerates")
    results = []
    for row in range(len(token_ids)):
        beams = _Beams(request, row, 0, num_return_sequences, length_penalty, early_stopping="never")
        prompt = token_ids[row, token_ids.size(1) - int(request.lengths[row]) :]
        results.append(_enumerate(model, prompt, beams, bind(processors, len(prompt))))
    return results


def _enumerate(model, prompt, beams, processors):
    """The best of all continuations of one prompt (P,), level by level."""
    texts, sums = prompt[None], torch.zeros(1, dtype=torch.float64)
    ends = torch.zeros(model.config.vocab_size, dtype=torch.bool)
    ends[list(beams.eos_token_ids)] = True
    for length in range(1, beams.max_length + 1):
        with torch.no_grad():
            logits = torch.cat([model(part, num_logits=1)[:, -1] for part in texts.split(4096)])
        log_probs = check_logits(logits).log_softmax(-1)
        totals = sums[:, None] + check_logits(apply(processors, texts, log_probs))  # (R, V)
        if length == beams.max_length:
            ends[:] = True
        rows, tokens = (ends & (totals > -torch.inf)).nonzero(as_tuple=True)
        ended = totals[rows, tokens]
        for i in ended.sort(descending=True, stable=True).indices[: beams.num_beams].tolist():
            new_token_ids = (*texts[rows[i], len(prompt) :].tolist(), int(tokens[i]))
            beams.finished.append(beams.hypothesis(new_token_ids, float(ended[i])))
        rows, tokens = (~ends & (totals > -torch.inf)).nonzero(as_tuple=True)
        if not len(rows):
            break
        texts, sums = torch.cat((texts[rows], tokens[:, None]), 1), totals[rows, tokens]
    return _best(beams.finished, beams.num_beams)


def _number_of_texts(request):
    """Texts of `max_new_tokens`: V^N, or V^64 where that is more."""
    return request.model.config.vocab_size ** min(max(request.max_new_tokens, 1), 64)


def _check_count(name, value, most, hint):
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer, at least 1")
    if value > most:
        raise ValueError(f"{name}={value} must be at most {most}, {hint}")
