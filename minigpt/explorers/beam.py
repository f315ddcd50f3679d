"""The beam search figure: a tree of next-token log-probabilities that the browser searches by itself. Chapter 06."""

import math

import torch
from traitlets import Enum, Float, Int, List, Unicode, validate

from minigpt.config import GPTConfig
from minigpt.explorers.base import Explorer, check_between, check_choice, check_index, read_prompt
from minigpt.kv_cache import KVCache

WIDTHS = range(1, 7)
END = "⟨end⟩"  # how the figure shows EOS

# Toy trees: word → probability of a leaf, or (probability, what follows). END ends a text; so does the full depth.
_AFTER_YES_OR_NO = {END: 0.3, "sir": (0.4, {END: 0.6, "!": (0.4, {END: 1})}), "!": (0.3, {END: 1})}
TOYS = [
    {
        "name": "toy: greedy is local",
        "branches": {
            "the": (0.5, {"dog": 0.4, "bird": 0.35, "cow": 0.25}),
            "a": (0.4, {"cat": 0.95, "dog": 0.05}),
            "my": (0.1, {"cat": 0.6, "dog": 0.4}),
        },
        "presets": [["greedy is local", {"width": 1}], ["two beams mend it", {"width": 2}]],
    },
    {
        "name": "toy: wider is worse",
        "branches": {
            "we": (0.5, {"sing": (0.4, {"on": 0.9, "up": 0.1}), "run": (0.3, {"on": 1}), "sit": (0.3, {"on": 1})}),
            "they": (0.45, {"walk": (0.52, {"on": 0.55, "up": 0.45}), "talk": (0.48, {"on": 0.6, "up": 0.4})}),
            "you": (0.05, {"sing": (1, {"on": 1})}),
        },
        "presets": [["wider is worse", {"width": 2}]],
    },
    {
        "name": "toy: the empty text",
        "branches": {"yes": (0.45, _AFTER_YES_OR_NO), "no": (0.35, _AFTER_YES_OR_NO), END: 0.2},
        "presets": [
            ["the empty text wins", {"width": 3, "alpha": 0}],
            ["a penalty brings words back", {"width": 3}],
            ["no early stop", {"width": 3, "early_stopping": "never"}],
        ],
    },
]


def toy_trees():
    """The toy trees of the figure, in the form of `record_tree`."""
    return [toy_tree(**toy) for toy in TOYS]


def toy_tree(branches, name="toy", presets=()):
    """A tree of your own, in the form of `record_tree`.

    Args:
        branches: word → probability of a leaf, or (probability, what follows, in the same form); `END` ends a text.
        name: what it is called in the figure.
        presets: `[label, settings]` pairs that the figure offers for it.

    Raises:
        ValueError: a branch that stops before the others without `END`.
    """
    words, nodes = [END], {}

    def walk(prefix, branches):
        row, depth = [], len(prefix) + 1
        for word, branch in branches.items():
            p, after = branch if isinstance(branch, tuple) else (branch, None)
            if word not in words:
                words.append(word)
            i = words.index(word)
            row.append([i, math.log(p)])
            depth = max(depth, walk((*prefix, i), after)) if after else depth
        nodes[" ".join(map(str, prefix))] = sorted(row, key=lambda entry: (-entry[1], entry[0]))
        return depth

    depth = walk((), branches)
    for prefix, row in nodes.items():
        for i, _ in row:
            text = [*prefix.split(), str(i)]
            if i != 0 and len(text) < depth and " ".join(text) not in nodes:
                said = " ".join(words[int(i)] for i in text)
                raise ValueError(f"“{said}” stops before the tree's depth of {depth}: let {END} follow, or more words")
    tokens = {str(i): word for i, word in enumerate(words)}
    facts = {"vocab_size": len(words), "eos": 0, "max_new_tokens": depth, "complete": True}
    return {"name": name, "prompt": "", **facts, "tokens": tokens, "nodes": nodes, "presets": list(presets)}


class TreeModel:
    """A tree as a model: after the prompt, one token of any kind, come the tree's own log-probabilities.

    It must see whole texts: search it with `use_cache=False`.

    Args:
        tree: as `toy_tree` or `record_tree` make it; a token it does not list is impossible.
    """

    def __init__(self, tree):
        self.nodes = tree["nodes"]
        shape = {"n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "d_model": 2, "d_ff": 1, "context_length": 64}
        self.config = GPTConfig(tree["vocab_size"], **shape)

    def __call__(self, token_ids, cache=None, *, attention_mask=None, num_logits=None):
        """Logits of the next token, (B, 1, V)."""
        logits = torch.full((len(token_ids), 1, self.config.vocab_size), -torch.inf, dtype=torch.float64)
        for row, text in zip(logits, token_ids.tolist(), strict=True):
            for i, log_prob in self.nodes[" ".join(map(str, text[1:]))]:
                row[0, i] = log_prob
        return logits


class BeamExplorer(Explorer):
    """Beam search step by step on a tree: what lives, what is pruned, what has ended, and which text wins.

    Args:
        trees: toy trees and what `record_tree` returns; `None` is the toys alone.
        tree: index of the tree shown first.
        width: beams, 1 to 6.
        alpha: the length penalty's exponent, in [-1, 2]; 0 is none.
        form: `"power"` (the score is sum / t^α) or `"gnmt"` (sum / ((5 + t) / 6)^α).
        early_stopping: `False`, `True` or `"never"`, as in `beam_search`.
        step: steps taken, at least 0; beyond the last one it is the end of the search.

    Raises:
        ValueError: no tree, a value outside its range.
    """

    name = "beam"
    scripts = ("beamsearch.js",)
    trees = List().tag(sync=True)
    tree = Int(0).tag(sync=True)
    width = Int(2).tag(sync=True)
    alpha = Float(1.0).tag(sync=True)
    form = Unicode("power").tag(sync=True)
    early_stopping = Enum([False, True, "never"], default_value=False).tag(sync=True)
    step = Int(99).tag(sync=True)

    def __init__(self, trees=None, **traits):
        trees = toy_trees() if trees is None else trees
        if not trees:
            raise ValueError("trees is empty: give what record_tree() returns, at least one, or None for the toys")
        super().__init__(trees=trees, **traits)

    @validate("trees")
    def _check_trees(self, proposal):
        if not all("" in tree["nodes"] for tree in proposal.value):
            raise ValueError("a tree without a root: use what record_tree() returns")
        return proposal.value

    @validate("tree")
    def _check_tree(self, proposal):
        return check_index(proposal, self.trees)

    @validate("width")
    def _check_width(self, proposal):
        return check_between(proposal, WIDTHS[0], WIDTHS[-1], ": a tree is recorded for those")

    @validate("alpha")
    def _check_alpha(self, proposal):
        return check_between(proposal, -1, 2, ", the range of the slider; 0 is no penalty")

    @validate("form")
    def _check_form(self, proposal):
        return check_choice(proposal, ("power", "gnmt"))

    @validate("step")
    def _check_step(self, proposal):
        if proposal.value < 0:
            raise ValueError(f"step={proposal.value} must be at least 0")
        return proposal.value

    def picture(self):
        """The first step: candidates after the prompt, and which of them become beams."""
        tree = self.trees[self.tree]
        first, beams = tree["nodes"][""][:8], [i for i, _ in tree["nodes"][""] if i != tree["eos"]][: self.width]
        rows = [(tree["tokens"][str(i)], math.exp(log_prob), i in beams) for i, log_prob in first]
        others = tree["vocab_size"] - len(rows)
        rest = 1 - sum(p for _, p, _ in rows)
        return [*rows, (f"{others:,} others", max(0.0, rest), False)] if others and rest > 1e-6 else rows


def record_tree(model, tokenizer, prompt, *, max_new_tokens, name=None, eos_token_id=None, presets=()):
    """Record the log-probabilities after every prefix that a beam search of width 1 to 6 can reach.

    Which prefixes stay alive does not depend on the length penalty or on the stop rule: beams of one step are
    equally long. So one record serves every penalty.

    Args:
        model, tokenizer: as `load` returns them.
        prompt: a text, or a list of messages for the chat template.
        max_new_tokens: the tree's depth, at least 1.
        name: what the tree is called in the figure; `None` is the prompt.
        eos_token_id: the token that ends a text; `None` is the tokenizer's, if it has one.
        presets: `[label, settings]` pairs that the figure offers for this tree.

    Returns:
        A dict that goes into JSON as it is.
    """
    ids, named = read_prompt(tokenizer, prompt, name)
    eos = tokenizer.eos_token_id if eos_token_id is None else eos_token_id
    cache = KVCache(model.config, 1, len(ids) + max_new_tokens)
    rows, new, nodes = [()], torch.tensor([ids]), {}
    beams = {width: [(0.0, ())] for width in WIDTHS}  # width → (sum, prefix), best first
    for step in range(max_new_tokens):
        with torch.no_grad():
            log_probs = model(new, cache, num_logits=1)[:, -1].float().log_softmax(-1)  # (rows, V)
        nodes.update(zip(rows, map(_likeliest, log_probs, [eos] * len(rows)), strict=True))
        beams = {width: _step(nodes, beams[width], width, eos) for width in WIDTHS}
        before, rows = rows, sorted({prefix for kept in beams.values() for _, prefix in kept})
        if step + 1 == max_new_tokens or not rows:
            break
        cache.reorder([before.index(prefix[:-1]) for prefix in rows])
        new = torch.tensor([[prefix[-1]] for prefix in rows])
    shown = sorted({i for row in nodes.values() for i, _ in row})
    tokens = {str(i): END if i == eos else tokenizer.token_text(i) for i in shown}
    facts = {"vocab_size": model.config.vocab_size, "eos": eos, "max_new_tokens": max_new_tokens, "complete": False}
    keyed = {" ".join(map(str, prefix)): row for prefix, row in nodes.items()}
    return {**named, **facts, "tokens": tokens, "nodes": keyed, "presets": list(presets)}


def _likeliest(log_probs, eos, top=2 * WIDTHS[-1]):
    """`[id, log-probability]` of the candidates a search can need, likeliest first, and of EOS: it is always shown."""
    ids = log_probs.argsort(descending=True, stable=True)[:top].tolist()
    ids += [eos] if eos is not None and eos not in ids else []
    return [[i, float(f"{log_probs[i]:.7g}")] for i in ids if log_probs[i] > -torch.inf]


def _step(nodes, beams, width, eos):
    """The beams after one more step of a search that never stops."""
    pool = [(total + p, -b, -i) for b, (total, prefix) in enumerate(beams) for i, p in nodes[prefix]]
    ranked = sorted(pool, reverse=True)[: 2 * width]
    kept = [(total, (*beams[-b][1], -i)) for total, b, i in ranked if -i != eos]
    return kept[:width]
