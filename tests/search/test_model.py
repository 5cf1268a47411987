"""`layerwise search` on a model that is more than its encoder: prompts, a head, normalising; warnings and progress."""

import logging
import os
import pty
import re
import termios
import time

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from layerwise import Head, LayerEncoder, LayerModel, LayerSearch, parse_mix, search_layers
from layerwise.errors import InputError
from layerwise.muted import muted
from layerwise.postprocess import ENCODER, FittedOn
from layerwise.search import chosen_model, only_head
from support.commands import assert_one_line, call, call_json, run_main
from support.pair_files import PAIRS, made_up_sentences, write
from support.tiny import WIDTH, WORDS

PROMPTS = {"query": f"{WORDS[0]} {WORDS[1]} ", "document": f"{WORDS[2]} ", "topic": f"{WORDS[3]} {WORDS[4]} "}


def make_head(width=WIDTH, out=20, seed=0):
    random = torch.Generator().manual_seed(seed)
    return Head(torch.randn(out, width, generator=random), torch.randn(out, generator=random))


@pytest.fixture(scope="module")
def sides():
    return made_up_sentences()


@pytest.fixture(scope="module")
def gold():
    return np.random.default_rng(0).permutation(PAIRS) / PAIRS


@pytest.fixture
def pairs(sides, gold, tmp_path):
    rows = [{"sentence1": a, "sentence2": b, "score": float(s)} for a, b, s in zip(*sides, gold, strict=True)]
    return write(tmp_path / "pairs.csv", rows)


@pytest.fixture(scope="module")
def folder(tiny_bert, tmp_path_factory):
    """A saved model with all that may stand around a mix."""
    place = tmp_path_factory.mktemp("model") / "whole"
    LayerModel(
        tiny_bert,
        "last",
        heads=[make_head()],
        normalize=True,
        prompts=PROMPTS,
        default_prompt_name="topic",
        similarity="dot",
    ).save(place)
    return place


def views_of(folder, sides, before):
    encoder = LayerEncoder(folder, device="cpu")
    return [encoder.encode_layers([p + text for text in side]) for p, side in zip(before, sides, strict=True)]


def assert_scores(said, search):
    assert said["best"]["layers"] == list(search.best_.layers)
    for name, choice in (("best", search.best_), ("last", search.last_)):
        assert (said[name]["dev"], said[name]["test"]) == pytest.approx((choice.dev, choice.test), abs=1e-5)


# Prompts


def test_pairs_get_the_default_prompt(folder, pairs, sides, gold):
    said = call_json("search", folder, pairs)
    prompt = PROMPTS["topic"]
    assert said["prompts"] == [prompt, prompt]
    assert_scores(said, LayerSearch(dev=0.5).fit(*views_of(folder, sides, (prompt, prompt)), gold))
    plain = LayerSearch(dev=0.5).fit(*views_of(folder, sides, ("", "")), gold)
    assert said["last"]["dev"] != pytest.approx(plain.last_.dev, abs=1e-3), "prompts matter here"
    assert f"Put before the texts: {prompt!r}." in " ".join(call("search", folder, pairs).split())


def test_queries_and_candidates_get_theirs(folder, pairs, sides):
    said = call_json("search", folder, pairs, "--metric", "mrr@10")
    before = (PROMPTS["query"], PROMPTS["document"])
    assert said["prompts"] == list(before)
    assert_scores(said, LayerSearch(metric="mrr@10", dev=0.5).fit(*views_of(folder, sides, before), range(PAIRS)))
    told = " ".join(call("search", folder, pairs, "--metric", "mrr@10").split())
    assert f"Put before the texts: {before[0]!r} and {before[1]!r}." in told


def test_without_labels_texts_get_the_default_prompt(folder, pairs, sides):
    said = call_json("search", folder, pairs, "--no-labels", "pairs")
    search = LayerSearch(dev=None).fit(*views_of(folder, sides, (PROMPTS["topic"],) * 2))
    assert said["best"]["layers"] == list(search.best_.layers)
    assert said["best"]["separation"] == pytest.approx(search.best_.dev, rel=1e-4)


def test_a_model_without_prompts_is_told_nothing_of_them(tiny_bert, pairs):
    assert call_json("search", tiny_bert, pairs)["prompts"] == ["", ""]
    assert "Put before" not in call("search", tiny_bert, pairs)


# What is saved


@pytest.mark.parametrize("options", [(), ("--no-labels", "dropout")])
def test_the_saved_model_keeps_what_stands_around_the_mix(folder, pairs, sides, tmp_path, options):
    said = call_json("search", folder, pairs, *options, "--save", tmp_path / "new")
    model = LayerModel.load(tmp_path / "new")
    assert str(model.mix) == said["best"]["mix"]
    assert (model.prompts, model.default_prompt_name) == (PROMPTS, "topic")
    assert (model.similarity_fn_name, model.normalize, model.heads) == ("dot", True, ())
    encoder = LayerEncoder(folder, device="cpu")
    expected = LayerModel(encoder, said["best"]["mix"], normalize=True).encode(sides[0], prompt=PROMPTS["topic"])
    assert np.abs(model.encode(sides[0]) - expected).max() < 1e-5
    assert np.abs(SentenceTransformer(str(tmp_path / "new"), device="cpu").encode(sides[0]) - expected).max() < 1e-5
    assert "the model's 1 head(s) after the mix are left out" in said["warnings"]


def test_the_model_with_another_mix_is_the_same_in_all_else(folder):
    model = LayerModel.load(folder)
    trained, whitened = (FittedOn.of(["a door"], source="a test", what=what) for what in (ENCODER, "whitening"))
    model.fitted_on = (trained, whitened)
    for keep, heads, records in ((False, (), (trained,)), (True, model.heads, (trained, whitened))):
        other = chosen_model(model, model.mix, "by a test", keep_heads=keep)
        assert (other.encoder, other.heads, other.chosen) == (model.encoder, heads, "by a test")
        assert other.fitted_on == records, "what is left out takes its record with it"
        for name in ("mix", "prompts", "default_prompt_name", "similarity_fn_name", "normalize"):
            assert getattr(other, name) == getattr(model, name)


def test_a_model_that_compares_in_another_way_is_told_of(tiny_bert, pairs, tmp_path):
    LayerModel(tiny_bert, similarity="euclidean").save(tmp_path / "far")
    note = "layers are chosen by cosine, but the model compares by euclidean"
    assert note in call_json("search", tmp_path / "far", pairs)["warnings"]
    assert f"Note: {note}." in call("search", tmp_path / "far", pairs, "--no-labels", "pairs")


# The head


def test_with_its_head_every_set_goes_through_it(folder, pairs, sides, gold, tmp_path):
    said = call_json("search", folder, pairs, "--head", "--compare-unlabelled", "--save", tmp_path / "new")
    prompt = PROMPTS["topic"]
    views = views_of(folder, sides, (prompt, prompt))
    search = LayerSearch(dev=0.5, head=make_head()).fit(*views, gold)
    assert_scores(said, search)
    assert said["head"] is True
    assert said["last"]["dev"] != pytest.approx(LayerSearch(dev=0.5).fit(*views, gold).last_.dev, abs=1e-3)
    assert not any("left out" in warning for warning in said["warnings"])
    free = parse_mix(said["unlabelled"]["mix"])
    assert said["unlabelled"]["test"] == pytest.approx(search.unseen_scores([free]).mean(), abs=1e-5)

    model = LayerModel.load(tmp_path / "new")
    assert torch.equal(model.heads[0].linear.weight, make_head().linear.weight)
    with torch.no_grad():
        behind = make_head()(torch.from_numpy(search.transform(views[0]))).numpy()
    expected = behind / np.linalg.norm(behind, axis=1, keepdims=True)
    assert np.abs(model.encode(sides[0]) - expected).max() < 1e-5


def test_without_labels_the_head_counts_too(folder, pairs, sides):
    said = call_json("search", folder, pairs, "--no-labels", "pairs", "--head")
    search = LayerSearch(dev=None, head=make_head()).fit(*views_of(folder, sides, (PROMPTS["topic"],) * 2))
    assert said["best"]["layers"] == list(search.best_.layers)
    assert said["best"]["separation"] == pytest.approx(search.best_.dev, rel=1e-4)


@pytest.mark.parametrize(
    ("mix", "heads", "parts"),
    [
        ("last", (), ("odd: has no head after its mix; --head needs just one",)),
        ("last", (make_head(), make_head(20, 8)), ("odd: has 2 heads after its mix; --head needs just one",)),
        ("concat(1,2)", (make_head(2 * WIDTH),), ("odd: its head takes 64 numbers, but a mean of layers has 32",)),
    ],
)
def test_a_head_that_is_none_is_refused(tiny_bert, monkeypatch, capfd, pairs, tmp_path, mix, heads, parts):
    LayerModel(tiny_bert, mix, heads=heads).save(tmp_path / "odd")
    capfd.readouterr()
    assert_one_line(*run_main(monkeypatch, capfd, "search", tmp_path / "odd", pairs, "--head"), *parts)


def test_a_head_that_is_no_linear_layer_is_refused(tiny_bert):
    model = LayerModel(tiny_bert)
    model.heads = (torch.nn.Identity(),)
    with pytest.raises(InputError, match="its head is no linear layer, which --head needs"):
        only_head(model)


# Warnings and progress


def test_a_warning_is_shown_once(tiny_bert, pairs, caplog):
    told = call("search", tiny_bert, pairs)
    assert told.count("pairs choose among") == 1
    assert "Note: 30 pairs choose among 31 sets: with fewer than 100" in told
    assert not [record for record in caplog.records if record.name.startswith("layerwise.search")]
    LayerSearch(dev=None).fit(*np.random.default_rng(0).normal(size=(2, 20, 3, 4)), np.arange(20))
    assert "20 pairs choose among 7 sets" in caplog.text, "in Python it is logged as before"


@pytest.mark.parametrize("level", [logging.NOTSET, logging.DEBUG, logging.CRITICAL])
def test_the_logger_is_as_it_was_after_an_error_too(level):
    logger = logging.getLogger("layerwise.test")
    logger.setLevel(level)
    with muted("layerwise.test"):
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.level == level
    with pytest.raises(RuntimeError, match="stopped"), muted("layerwise.test"):
        raise RuntimeError("stopped")
    assert logger.level == level


WITH_A_TERMINAL = """
import os, sys
os.dup2(os.open(sys.argv.pop(1), os.O_RDWR), 2)
from layerwise.cli.app import main
main()
"""


def test_a_terminal_sees_how_far_encoding_and_searching_are(tiny_bert, pairs, forks):
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, 120))
    options = ("--pooling", "mean,cls", "--splits", 3, "--json")
    os.set_blocking(screen, False)
    with os.fdopen(screen, "rb", buffering=0) as shown:
        running, seen = forks.start(WITH_A_TERMINAL, os.ttyname(terminal), "search", tiny_bert, pairs, *options), b""
        while (part := shown.read(4096)) or running.poll() is None:
            seen += part or b""
            time.sleep(0 if part else 0.01)
        os.close(terminal)
        assert running.wait() == 0, running.stderr
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert re.search(rf"Layers: 100%.* {2 * PAIRS}/{2 * PAIRS} ", text), "counted sentences"
    assert re.search(r"Searching .* 186/186 sets", text), "31 sets x 2 poolings x 3 splits"


def test_a_log_file_sees_no_bars(tiny_bert, pairs, capfd):
    call("search", tiny_bert, pairs)
    assert "Layers" not in capfd.readouterr().err


def test_reporting_pairs_that_share_a_sentence_with_a_choosing_one_are_counted(tiny_layers, sides, gold):
    left, right = sides
    alone = [f"{text} {number}" for number, text in enumerate(left)]
    apart = [f"{text} {number}" for number, text in enumerate(right, start=len(left))]
    shared = "reporting pairs share a sentence with one that chooses"
    assert not any(shared in note for note in search_layers(tiny_layers, alone, apart, gold).warnings)
    result = search_layers(tiny_layers, [alone[0]] * len(alone), apart, gold)
    assert f"{PAIRS // 2} of {PAIRS // 2} {shared}" in result.warnings
