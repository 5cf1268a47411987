"""`layerwise search` on a model with prompts and a head: what it saves, and what a terminal sees meanwhile."""

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

from layerwise import Head, LayerModel
from layerwise.muted import muted
from support.commands import assert_one_line, call, call_json, run_main
from support.pair_files import PAIRS, made_up_sentences, write
from support.tiny import WIDTH, WORDS

PROMPTS = {"query": f"{WORDS[0]} {WORDS[1]} ", "document": f"{WORDS[2]} ", "topic": f"{WORDS[3]} {WORDS[4]} "}
LEFT, RIGHT = made_up_sentences()


@pytest.fixture
def pairs(tmp_path):
    scores = np.random.default_rng(0).permutation(PAIRS) / PAIRS
    rows = zip(LEFT, RIGHT, map(float, scores), strict=True)
    return write(tmp_path / "pairs.csv", [{"sentence1": a, "sentence2": b, "score": score} for a, b, score in rows])


@pytest.fixture(scope="module")
def folder(tiny_bert, tmp_path_factory):
    """A saved model with all that may stand around a mix."""
    place = tmp_path_factory.mktemp("model") / "whole"
    random = torch.Generator().manual_seed(0)
    head = Head(torch.randn(20, WIDTH, generator=random), torch.randn(20, generator=random))
    around = {"prompts": PROMPTS, "default_prompt_name": "topic", "similarity": "dot"}
    LayerModel(tiny_bert, "last", heads=[head], normalize=True, **around).save(place)
    return place


def test_prompts_are_told(folder, tiny_bert, pairs):
    assert f"Put before the texts: {PROMPTS['topic']!r}." in " ".join(call("search", folder, pairs).split())
    queries = " ".join(call("search", folder, pairs, "--metric", "mrr@10").split())
    assert f"Put before the texts: {PROMPTS['query']!r} and {PROMPTS['document']!r}." in queries
    assert "Put before" not in call("search", tiny_bert, pairs)


@pytest.mark.parametrize("options", [(), ("--no-labels", "dropout"), ("--head",)])
def test_the_saved_model_keeps_what_stands_around_the_mix(folder, pairs, tmp_path, options):
    facts = call_json("search", folder, pairs, "--layers", "exactly 2", *options, "--save", tmp_path / "new")
    model = LayerModel.load(tmp_path / "new")
    assert str(model.mix) == facts["verdict"]["use"]
    assert (model.prompts, model.default_prompt_name) == (PROMPTS, "topic")
    assert (model.similarity_fn_name, model.normalize) == ("dot", True)
    assert len(model.heads) == ("--head" in options)
    whole = LayerModel.load(folder)
    expected = whole.replaced(mix=model.mix, heads=model.heads).encode(LEFT, prompt=PROMPTS["topic"])
    assert np.abs(model.encode(LEFT) - expected).max() < 1e-5
    assert np.abs(SentenceTransformer(str(tmp_path / "new"), device="cpu").encode(LEFT) - expected).max() < 1e-5
    assert any("head(s) after the mix are left out" in note for note in facts["warnings"]) == ("--head" not in options)


def test_a_head_that_is_none_is_refused(tiny_bert, monkeypatch, capfd, pairs):
    assert_one_line(*run_main(monkeypatch, capfd, "search", tiny_bert, pairs, "--head"), "has no head after its mix")


def test_a_warning_is_shown_once(tiny_bert, pairs):
    shown = call("search", tiny_bert, pairs)
    assert shown.count("pairs choose among") == 1
    assert "Note: 30 pairs choose among 31 sets: with fewer than 100" in shown


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


@pytest.mark.slow
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
