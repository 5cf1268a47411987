"""`layerwise search --prompts`: views of prompts from the command line, and its mistakes in one line each."""

import re

import numpy as np
import pytest

from layerwise.data import read_pairs
from layerwise.encoder import LayerEncoder
from layerwise.model import LayerModel
from layerwise.search import Search
from support.commands import assert_one_line, call, call_json, run_main
from support.pair_files import write
from support.text_pairs import some_pairs
from support.tiny import save_decoder

PAIRS = 60


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_decoder("llama", tmp_path_factory.mktemp("decoder") / "llama")


@pytest.fixture(scope="module")
def graded(llama):
    """Pairs whose grades are the cosines of one view: layer 2 by the last token in the prompt eol."""
    pairs, encoder = some_pairs(PAIRS), LayerEncoder(llama, device="cpu")
    views = encoder.encode_layers([*pairs.left, *pairs.right], "last in eol")[:, 2]
    left, right = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (views[:PAIRS], views[PAIRS:]))
    scores = (left * right).sum(1)
    return [
        {"sentence1": a, "sentence2": b, "score": float(s)}
        for a, b, s in zip(pairs.left, pairs.right, scores, strict=True)
    ]


@pytest.fixture
def pairs(graded, tmp_path):
    return write(tmp_path / "pairs.csv", graded)


def test_the_best_views_are_found_priced_and_saved(llama, pairs, tmp_path):
    found = call_json(
        "search",
        llama,
        pairs,
        "--prompts",
        "eol,twice",
        "--scale",
        "unit",
        "--save",
        tmp_path / "best",
        "--device",
        "cpu",
    )
    assert "2 @ last in eol" in found["chosen"]["mix"]
    assert found["verdict"]["reliable_gain"]
    assert found["chosen"]["cost"]["passes"] <= 2
    assert found["stability"]["views"]["2 @ last in eol"] > 0.5
    assert set(found["singles"]) == {"mean", "last in eol", "mean in eol", "mean in twice"}
    protocol = found["protocol"]
    assert protocol["choosing"] + protocol["reporting"] + protocol["left_out"] == PAIRS
    model = LayerModel.load(tmp_path / "best", device="cpu")
    assert str(model.mix) == found["verdict"]["use"]


@pytest.mark.slow
def test_the_command_is_the_library(llama, pairs):
    found = call_json(
        "search", llama, pairs, "--prompts", "eol", "--remove", "none,mean", "--seed", 2, "--device", "cpu"
    )
    model = LayerModel.load(llama, device="cpu")
    rows = read_pairs(str(pairs), ("sentence1", "sentence2"), "score")
    selection = Search(prompts=["eol"], remove=(None, 0), screen_pairs=100, seed=2).fit(model, rows).selection_
    assert found["chosen"]["mix"] == str(selection.chosen.mix)
    assert found["chosen"]["test"] == pytest.approx(selection.chosen.test)


def test_people_are_told_the_verdict_the_cost_and_the_best_views_alone(llama, pairs):
    options = ["--prompts", "eol,echo", "--pooling", "all", "--max-passes", 1, "--device", "cpu"]
    said = call("search", llama, pairs, *options)
    assert "Use views(" in said
    assert "The best found costs 1 pass, " in said
    assert "Note: 30 pairs choose among 40 views: with fewer than 100, which of the good ones is best" in said
    assert "does not apply to the gain over the baseline, which is known only to ±" in " ".join(said.split())
    assert "Most often chosen by halves of the pairs: 2 @ last in eol (" in said
    assert "The best views alone" in said
    assert "last in eol" in said
    assert "Quality against cost" in said


@pytest.mark.slow
def test_prompts_of_a_file_and_a_corpus(tiny_bert, pairs, tmp_path):
    prompts, corpus = tmp_path / "mine.txt", tmp_path / "corpus.txt"
    prompts.write_text("the river {text}\n{text} is {mask}\n")
    corpus.write_text("\n".join(["the old river", "who left", "prices fell", "the door was open"] * 3))
    options = ["--prompts", prompts, "--remove", "mean,2", "--corpus", corpus, "--max-cost", 2, "--device", "cpu"]
    found = call_json("search", tiny_bert, pairs, *options)
    assert 'mask in "{text} is {mask}"' in found["singles"]
    assert found["protocol"]["options"]["remove"] == [0, 2]
    assert found["chosen"]["cost"]["passes"] <= 2
    assert found["fitted_on"] == "corpus"
    told = call("search", tiny_bert, pairs, *options, "--fit-on", "either")
    assert re.search(
        r"were fitted on (corpus\.txt|the choosing pairs): by that text they chose better", " ".join(told.split())
    )


def test_mistakes_are_one_line_each(llama, tiny_bert, pairs, tmp_path, monkeypatch, capfd):
    wrong, masked = tmp_path / "wrong.txt", tmp_path / "masked.txt"
    wrong.write_text("no place for it\n")
    masked.write_text("{text} {mask} and {mask}\n")
    for model, options, parts in (
        (llama, ["--prompts", "eoll"], ["Unknown prompt 'eoll'", "Did you mean 'eol'"]),
        (llama, ["--prompts", wrong], ["wrong.txt:1", "has 0 places for the text"]),
        (llama, ["--prompts", masked], ["masked.txt:1", "has 2 masks"]),
        (llama, ["--prompts", "means"], ["has no mask token"]),
        (tiny_bert, ["--prompts", "chat-word"], ["has no chat template"]),
        (llama, ["--prompts", tmp_path / "none.toml"], ["none.toml", "no such file"]),
        (llama, ["--scale", "one"], ["Unknown --scale 'one'"]),
        (llama, ["--remove", "three"], ["'three' is neither none, mean nor a number"]),
        (llama, ["--remove", "mean,9999"], ["remove 9999", "at most 31"]),
        (llama, ["--corpus", pairs], ["give --remove too"]),
        (llama, ["--remove", "mean", "--corpus", tmp_path / "no.txt"], ["no.txt", "no such file"]),
        (llama, ["--remove", "mean", "--fit-on", "either"], ["--fit-on either needs a text; give --corpus too"]),
        (llama, ["--fit-on", "pairs"], ["--fit-on pairs says what --remove is fitted on; give --remove too"]),
        (
            llama,
            ["--remove", "mean", "--corpus", pairs, "--fit-on", "pairs"],
            ["--fit-on pairs has no use for --corpus"],
        ),
        (llama, ["--remove", "mean", "--corpus", pairs, "--fit-on", "both"], ["Unknown --fit-on 'both'"]),
        (llama, ["--prompts", "eol", "--max-cost", "0"], ["--max-cost 0 is not possible"]),
        (llama, ["--prompts", "eol", "--method", "beam"], ["--method is for sets of layers"]),
        (llama, ["--prompts", "eol", "--max-layer", "2"], ["--max-layer is for sets of layers"]),
        (llama, ["--prompts", "eol", "--compare-unlabelled"], ["--compare-unlabelled is for sets of layers"]),
        (llama, ["--prompts", "eol", "--max-cost", "nan"], ["--max-cost nan is not possible"]),
        (llama, ["--remove", "²"], ["'²' is neither none, mean nor a number"]),
        (llama, ["--max-cost", "1", "--max-layer", "2"], ["--max-layer is for sets", "leave it out with --max-cost"]),
        (llama, ["--prompts", "eol", "--pooling", "maen"], ["Unknown token pooling 'maen'"]),
    ):
        told = run_main(monkeypatch, capfd, "search", model, pairs, *options, "--device", "cpu")
        assert_one_line(*told, *parts)
