"""The beam tree in Chromium against `minigpt.search`: every step, every text, the words, the keyboard."""

import itertools
import json
import math
import random

import pytest
import torch
from figures import (
    HOSTILE,
    check_fits,
    check_nothing_ran,
    check_rendered_once,
    check_tab_stops,
    mount,
    press_keys,
    press_preset,
    set_state,
)
from playwright.sync_api import Error
from toy_models import tiny_model

from minigpt.explorers import BeamExplorer, TreeModel, record_tree, toy_trees
from minigpt.search import beam_search, beam_steps, exact_search, gnmt
from minigpt.tokenization import CharTokenizer

FIGURES = (BeamExplorer,)
SETTINGS = 150  # random trees, each with settings of its own
SEED = 6


def random_tree(pick):
    """A complete tree: 3 to 5 tokens, 2 to 4 deep, with or without EOS, some tokens impossible."""
    V, depth, eos = pick.randint(3, 5), pick.randint(2, 4), pick.choice((None, 0))
    nodes = {}
    for length in range(depth):
        for prefix in itertools.product(range(V), repeat=length):
            if eos in prefix:
                continue
            weights = [math.exp(pick.gauss(0, 1.5)) * (i == 1 or pick.random() < 0.9) for i in range(V)]
            row = [[i, math.log(w / sum(weights))] for i, w in enumerate(weights) if w]
            nodes[" ".join(map(str, prefix))] = sorted(row, key=lambda entry: -entry[1])
    facts = {"vocab_size": V, "eos": eos, "max_new_tokens": depth, "complete": True, "nodes": nodes, "presets": []}
    return {"name": "random", "prompt": "", "tokens": {str(i): "abcde"[i] for i in range(V)}, **facts}


def random_settings(pick):
    """Width, penalty and stop rule, each from the whole range of its control."""
    alpha = pick.choice((0, 1, pick.randrange(-10, 21) / 10))
    form, stopping = pick.choice(("power", "gnmt")), pick.choice((False, True, "never"))
    return {"width": pick.randint(1, 6), "alpha": alpha, "form": form, "early_stopping": stopping}


def in_python(settings):
    """The figure's settings as `beam_search` takes them."""
    penalty = gnmt(settings["alpha"]) if settings["form"] == "gnmt" else settings["alpha"]
    stopping = settings["early_stopping"]
    return {"num_beams": settings["width"], "length_penalty": penalty, "early_stopping": stopping}


def in_script(settings):
    """The figure's settings as its search takes them."""
    stopping = str(settings["early_stopping"]).lower()
    return {**{key: settings[key] for key in ("width", "alpha", "form")}, "stopping": stopping}


def compare(page, tree, settings):
    """The script's search is minigpt's: candidates, beams, ended texts, finished ones, and when it stops."""
    request = {"max_new_tokens": tree["max_new_tokens"], "eos_token_id": tree["eos"], "use_cache": False}
    steps = [step for (step,) in beam_steps(TreeModel(tree), torch.tensor([[1]]), **in_python(settings), **request)]
    answer = page.evaluate("([tree, how]) => nextToken.beams.search(tree, how)", [tree, in_script(settings)])
    assert len(answer) == len(steps), settings
    for got, step in zip(answer, steps, strict=True):
        shown = got["candidates"]
        assert [(one["parent"], one["id"]) for one in shown] == [(c.beam, c.token_id) for c in step.candidates], (
            settings
        )
        sums = [c.sum_log_prob for c in step.candidates]
        assert [one["sum"] for one in shown] == pytest.approx(sums, abs=1e-9)
        fate = {"kept": step.kept, "ended": step.ended}
        for name, expected in fate.items():
            chosen = [one for one in shown if one["fate"] in ((name, "cut") if name == "ended" else (name,))]
            assert [(one["parent"], one["id"]) for one in chosen] == [(c.beam, c.token_id) for c in expected], settings
        assert [tuple(one["ids"]) for one in got["finished"]] == [h.token_ids for h in step.finished], settings
        assert [one["score"] for one in got["finished"]] == pytest.approx([h.score for h in step.finished], abs=1e-9)
        reasons = ["eos" if one["fate"] == "ended" else "length" for one in got["finished"]]
        assert reasons == [h.finish_reason for h in step.finished]
    return steps


def test_search_is_minigpts(page):
    """Random trees and settings, step by step; early ends and pruned EOS candidates occur among them."""
    pick, early, dropped = random.Random(SEED), 0, 0
    for _ in range(SETTINGS):
        tree, settings = random_tree(pick), random_settings(pick)
        steps = compare(page, tree, settings)
        early += len(steps) < tree["max_new_tokens"]
        dropped += any(c.token_id == tree["eos"] and c not in s.ended for s in steps for c in s.candidates)
    assert early > 10 and dropped > 10


def test_ties_are_minigpts(page):
    """Equal sums everywhere: the earlier beam comes first, then the lower id."""
    pick = random.Random(SEED)
    for _ in range(20):
        tree, settings = random_tree(pick), random_settings(pick)
        for row in tree["nodes"].values():
            row[:] = [[i, -math.log(tree["vocab_size"])] for i in range(tree["vocab_size"])]
        compare(page, tree, settings)


def test_exact_and_greedy_are_minigpts(page):
    """The star and the square: every text looked at, and width 1 without a length penalty."""
    pick = random.Random(SEED)
    for _ in range(40):
        tree, settings = random_tree(pick), random_settings(pick)
        request = {"max_new_tokens": tree["max_new_tokens"], "eos_token_id": tree["eos"]}
        penalty = in_python(settings)["length_penalty"]
        best = exact_search(TreeModel(tree), torch.tensor([[1]]), length_penalty=penalty, **request)[0][0]
        got = page.evaluate("([tree, how]) => nextToken.beams.exact(tree, how)", [tree, in_script(settings)])
        assert (tuple(got["ids"]), got["score"]) == (best.token_ids, pytest.approx(best.score, abs=1e-9))
        one = {"num_beams": 1, "early_stopping": True, "use_cache": False, **request}
        (path,) = beam_search(TreeModel(tree), torch.tensor([[1]]), **one)[0]
        got = page.evaluate("(tree) => nextToken.beams.greedy(tree)", tree)
        assert (tuple(got["ids"]), got["sum"]) == (path.token_ids, pytest.approx(path.sum_log_prob, abs=1e-9))


@pytest.fixture(scope="module")
def recorded():
    """A tree of a random MiniGPT over characters, some of them awkward; its EOS is one of them."""
    model, tokenizer = tiny_model(seed=3, dtype=torch.float64), CharTokenizer('abcdefghijklmnop <>&\n\t"')
    return model, record_tree(model, tokenizer, "abc", max_new_tokens=6, eos_token_id=4, name="characters")


def test_a_recorded_tree_serves_every_setting(page, recorded):
    """No width, penalty or stop rule runs out of the record, and what it finds is what the model's own search finds."""
    model, tree = recorded
    prompt, pick = torch.tensor([CharTokenizer('abcdefghijklmnop <>&\n\t"').encode("abc")]), random.Random(SEED)
    request = {"max_new_tokens": 6, "eos_token_id": 4, "use_cache": False}
    for _ in range(60):
        settings = random_settings(pick)
        found = beam_search(model, prompt, num_return_sequences=settings["width"], **in_python(settings), **request)[0]
        answer = page.evaluate("([tree, how]) => nextToken.beams.search(tree, how)", [tree, in_script(settings)])
        texts = [(tuple(one["ids"]), one["sum"], one["score"]) for one in answer[-1]["finished"]]
        assert [ids for ids, *_ in texts] == [h.token_ids for h in found]
        assert [x for _, *pair in texts for x in pair] == pytest.approx(
            [x for h in found for x in (h.sum_log_prob, h.score)], abs=1e-5
        )


def test_numbers_of_the_figure(page, recorded):
    """Table, list of texts, tree and sentence say the same, at random steps of the toys and of a recorded tree."""
    trees, pick = [*toy_trees(), recorded[1]], random.Random(SEED)
    mount(page, BeamExplorer(trees))
    for _ in range(60):
        number, settings = pick.randrange(len(trees)), random_settings(pick)
        tree = trees[number]
        steps = page.evaluate("([tree, how]) => nextToken.beams.search(tree, how)", [tree, in_script(settings)])
        step = pick.randint(0, len(steps))
        shown = set_state(page, tree=number, step=step, **settings)
        seen = [(s + 1, one) for s, entry in enumerate(steps[:step]) for one in entry["candidates"]]
        assert [(int(row[0]), int(row[3]), float(row[5])) for row in shown["rows"]] == [
            (s, one["id"], pytest.approx(one["sum"], abs=1e-9)) for s, one in seen
        ]
        fates = {"kept": "kept", "ended": "ended", "cut off": "cut", "pruned": "pruned"}
        assert [fates[row[6]] for row in shown["rows"]] == [one["fate"] for _, one in seen]
        assert page.locator(".nt-node").count() == 1 + len(seen)
        winner = page.locator(".nt-texts .nt-won")
        assert winner.count() == (step == len(steps))
        if step == len(steps):
            best = steps[-1]["finished"][0]
            score = f"{best['score']:.3f}".replace("-", "−")
            assert f"t = {len(best['ids'])}, score {score}" in shown["words"] and score in winner.text_content()
            last = page.locator(".nt-node.nt-winner").last.get_attribute("data-ids")
            assert last == " ".join(map(str, best["ids"]))
        elif step:
            kept = sum(one["fate"] == "kept" for one in steps[step - 1]["candidates"])
            assert f"{kept} {'is' if kept == 1 else 'are'} kept" in shown["words"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("greedy is local", "Width 1 ends with “the dog”: sum −1.61"),
        ("two beams mend it", "Width 2 ends with “a cat”: sum −0.97"),
        ("wider is worse", "The best text of the tree is “we sing on”"),
        ("the empty text wins", "Width 3 ends with “(empty)”: sum −1.61, t = 1"),
        ("a penalty brings words back", "Width 3 ends with “yes !”"),
        ("no early stop", "Width 3 ends with “yes sir !”"),
    ],
)
def test_presets_make_their_point(page, name, words):
    """Each named state shows what its name says, and is marked while it is shown."""
    mount(page, BeamExplorer(width=4, alpha=-1.0, tree=1))
    assert words in press_preset(page, name)


def test_toys_say_what_the_book_says(root):
    """The facts of the toys, by minigpt's own search: greedy .20 against .38, and a wider beam that finds less."""
    greedy, wider, empty = toy_trees()

    def best(tree, width, alpha=0.0):
        request = {"max_new_tokens": tree["max_new_tokens"], "eos_token_id": 0, "use_cache": False}
        found = beam_search(
            TreeModel(tree),
            torch.tensor([[1]]),
            num_beams=width,
            length_penalty=alpha,
            early_stopping="never",
            **request,
        )[0][0]
        return [tree["tokens"][str(i)] for i in found.token_ids], math.exp(found.sum_log_prob)

    assert best(greedy, 1) == (["the", "dog"], pytest.approx(0.2))
    assert best(greedy, 2) == (["a", "cat"], pytest.approx(0.38))
    assert best(wider, 1)[1] == pytest.approx(0.18) and best(wider, 2)[1] < 0.14 and best(wider, 3)[1] > 0.17
    assert best(empty, 1)[0][0] == "yes" and best(empty, 3)[0] == ["⟨end⟩"]


def test_steps_by_keyboard(show):
    """Arrows, Home and End step through the search from anywhere in the figure; sliders keep their own arrows."""
    page = show(BeamExplorer(tree=1, step=0).to_html())
    where = page.locator("output").last
    page.locator(".nt-tree").focus()
    keys = [("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 3), ("ArrowRight", 3), ("Home", 0)]
    press_keys(page, where, [(key, f"{step} of 3") for key, step in keys])
    page.locator("input[type=range]").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("output").first.text_content() == "3" and where.text_content() == "0 of 3"


def test_every_control_by_tab(show):
    """Tab reaches every control, and each has a name."""
    check_tab_stops(show(BeamExplorer().to_html()))


def test_play_pause_and_reset(show):
    """Play goes on by itself until the end; the arrows at the sliders bring their first values back."""
    page = show(BeamExplorer(tree=1, width=5, alpha=-0.5, step=2).to_html())
    page.get_by_text("Play", exact=True).click()
    page.wait_for_function("[...document.querySelectorAll('output')].at(-1).textContent === '3 of 3'")
    page.wait_for_function("[...document.querySelectorAll('button')].some((b) => b.textContent === 'Play')")
    for label in ("Reset width (beams)", "Reset penalty α"):
        page.get_by_label(label).click()
    assert page.locator("output").all_text_contents()[:2] == ["2", "1.0"]


def test_hostile_text_stays_text(show):
    """A token or a name that looks like HTML is shown, not run."""
    tree = json.loads(json.dumps(toy_trees()[0]))
    tree.update(name=HOSTILE, tokens={i: HOSTILE for i in tree["tokens"]}, presets=[[HOSTILE, {"width": 2}]])
    page = show(BeamExplorer([tree]).to_html())
    page.get_by_text("Table", exact=True).click()
    assert HOSTILE in page.locator(".nt-readout").text_content()
    check_nothing_ran(page)
    assert page.log.complaints == []


@pytest.mark.parametrize("width", [1200, 390])
def test_fits(show, recorded, width):
    """The figure is never wider than the screen; the tree scrolls inside it, and shows its latest step."""
    page = show(BeamExplorer([recorded[1]], width=6, step=5).to_html(), width=width)
    nodes = ":is(span, b, button, output, label, select):not(.nt-texts *)"  # the list of texts scrolls
    check_fits(page, width, nodes)
    tree = page.locator(".nt-tree")
    assert tree.evaluate("n => Math.abs(n.scrollLeft + n.clientWidth - n.scrollWidth) < 2")
    last = page.locator(".nt-node").last.bounding_box()
    assert last["x"] + last["width"] <= width
    page.locator(".nt-tree").focus()
    page.keyboard.press("End")
    end = page.locator(".nt-node.nt-winner").last.bounding_box()  # a winner that ended long ago is in sight too
    assert 0 <= end["x"] and end["x"] + end["width"] <= width
    page.add_style_tag(content="body { margin: 0 16px; }")  # about what a book's page leaves
    check_fits(page, width, nodes)


def test_rendering_again_leaves_one(page):
    """One figure and one listener a trait after three renderings, none after the last is removed."""
    check_rendered_once(page, BeamExplorer())


def test_no_tree_and_a_hole_are_named(show):
    """A figure without trees says so; a tree that lacks a prefix is named, not drawn wrong."""
    page = show('<div class="nt-explorer" data-explorer="beam"></div>')
    assert "no tree was recorded" in page.locator(".nt-notice").text_content()
    tree = json.loads(json.dumps(toy_trees()[0]))
    del tree["nodes"]["1"]
    with pytest.raises(Error, match="no entry for 1"):
        page.evaluate("(tree) => nextToken.beams.search(tree, { width: 2 })", tree)


def test_smollm2_in_the_page_is_smollm2(page, smollm2):
    """A recorded tree of the real model, searched in the browser, gives what the model's own search gives."""
    model, tokenizer = smollm2
    tree = record_tree(model, tokenizer, "The capital of France is", max_new_tokens=6)
    assert len(json.dumps(tree)) < 30_000
    prompt = torch.tensor([tokenizer.encode("The capital of France is")])
    for width, alpha in ((1, 0), (3, 1), (6, 0)):
        settings = {"width": width, "alpha": alpha, "form": "power", "early_stopping": False}
        request = {"max_new_tokens": 6, "eos_token_id": tokenizer.eos_token_id}
        found = beam_search(model, prompt, num_return_sequences=width, **in_python(settings), **request)[0]
        answer = page.evaluate("([tree, how]) => nextToken.beams.search(tree, how)", [tree, in_script(settings)])
        assert [tuple(one["ids"]) for one in answer[-1]["finished"]] == [h.token_ids for h in found]
        scores = [one["score"] for one in answer[-1]["finished"]]
        assert scores == pytest.approx([h.score for h in found], abs=1e-4)
