"""The pages of the documentation that tell a story: their commands run as they stand and print what is shown."""

import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from support.pages import DOCS, Block, assert_shown, blocks_of, commands_of, run_page, run_python
from support.serving import started

ROOT = Path(__file__).parents[2]
TOLD = (
    "tutorials/fewer-blocks.md",
    "tutorials/domain-encoder.md",
    "tutorials/training-with-layers.md",
    "tutorials/several-tasks.md",
)
DECODER = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def folder(tmp_path, cache, monkeypatch):
    """A folder of its own for each page, and one cache for all: the same sentences are encoded once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYERWISE_CACHE", str(cache))


def is_served(block):
    return block.text.startswith("layerwise serve ") or "urlopen" in block.text


@pytest.mark.slow  # they train
@pytest.mark.parametrize("name", TOLD)
def test_a_page_runs_and_prints_what_it_shows(name, tmp_path):
    outputs = list(run_page(DOCS / name))
    assert outputs
    for shown, printed in outputs:
        assert_shown(shown, printed)


def test_the_examples_of_the_readme_print_what_it_shows(tmp_path):
    shutil.copy(ROOT / "src/layerwise/data/demo_pairs.csv", "pairs.csv")
    shutil.copy(ROOT / "src/layerwise/data/demo_corpus.txt", "corpus.txt")
    outputs = list(run_page(ROOT / "README.md", skip=lambda block: "serve" in block.text or "openai" in block.text))
    assert len(outputs) == 4
    for shown, printed in outputs[:-1]:  # the last one, of the server, is in serve/test_clients
        assert_shown(shown, printed)
    assert (tmp_path / "best" / "modules.json").is_file()
    assert (tmp_path / "trained" / "model" / "modules.json").is_file()


def test_the_examples_of_the_readme_are_short():
    code = [block for block in blocks_of(ROOT / "README.md") if block.language != "text"]
    assert len(code) == 6
    assert max(len([line for line in block.text.splitlines() if line]) for block in code) <= 6


@pytest.mark.slow  # the report of all pairs takes its time, and the README has the other commands
def test_ten_minutes_run_with_their_report(tmp_path):
    outputs = list(run_page(DOCS / "start/ten-minutes.md"))
    assert len(outputs) == 6
    for shown, printed in outputs:
        assert_shown(shown, printed)
    assert (tmp_path / "report.html").is_file()


@pytest.fixture
def decoder(cache):
    """The weights of the tutorial, where `smollm2_folder` looks for them."""
    folder = Path(os.environ.get("LAYERWISE_MODELS", ROOT.parent / "models")) / DECODER
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"{folder} is not there: set LAYERWISE_MODELS to the folder of {DECODER}")
    (cache / "models").mkdir(exist_ok=True)
    (cache / "models" / DECODER).symlink_to(folder, target_is_directory=True)


@pytest.mark.slow  # 135 million weights read 560 sentences twice
@pytest.mark.shared
@pytest.mark.timeout(1800)
def test_a_small_language_model_is_searched_as_the_page_says(decoder, tmp_path):
    outputs = list(run_page(DOCS / "tutorials/small-llm.md"))
    assert len(outputs) == 5
    for shown, printed in outputs:
        assert_shown(shown, printed)
    assert (tmp_path / "best" / "modules.json").is_file()


@pytest.mark.slow  # tests/serve and tests/index have the same by a tiny model
def test_the_search_service_answers_as_the_page_says(forks):
    page = DOCS / "tutorials/search-service.md"
    *outputs, (answer, nothing) = run_page(page, skip=is_served)
    assert nothing == ""
    for shown, printed in outputs:
        assert_shown(shown, printed)
    ((_, *words),) = [commands_of(block)[0] for block in blocks_of(page) if block.text.startswith("layerwise serve ")]
    (code,) = [block.text for block in blocks_of(page) if "urlopen" in block.text]
    with started(forks, *words) as (_, url):
        assert_shown(answer, run_python(code.replace("http://127.0.0.1:8000", url), {}))


@pytest.mark.slow  # tests/serve has the same by a tiny model
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_server_answers_curl_as_its_page_says(forks):
    """With the index of the tutorial and with keys, which are added to the lines that have none."""
    list(run_page(DOCS / "tutorials/search-service.md", skip=is_served))
    Path("keys.txt").write_text("0123456789abcdef\n")
    blocks = blocks_of(DOCS / "serving.md")
    shown = [(one.text, after.text) for one, after in pairwise(blocks) if one.text.startswith("curl ")]
    shown = [(line, answer) for line, answer in shown if answer.startswith("{")]
    assert len(shown) == 5
    with started(forks, "default", "--index", "help=help.index", "--keys", "keys.txt") as (_, url):
        for line, expected in shown:
            line = line.strip().replace("http://127.0.0.1:8000", url)
            line += "" if "Authorization" in line else " -H 'Authorization: Bearer 0123456789abcdef'"
            answer = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True, timeout=60).stdout
            parts = ["".join(part.split()) for part in expected.split("…")]
            assert re.fullmatch(".*".join(map(re.escape, parts)), "".join(answer.split())), answer


@pytest.mark.parametrize(
    ("shown", "printed", "is_near", "fits"),
    [
        ("a 1\nb", "a  1\n──\nb\n", False, True),
        ("a\n…\nc", "a\nb\nc\n", False, True),
        ("took 3.1 s", "took 12 s", False, True),
        ("a 1.5 to +2", "a 1.7 to -2", True, True),
        ("a\nc", "a\nb\nc\n", False, False),
        ("a", "a\nb", False, False),
        ("a 1", "a 2", False, False),
        ("b 1", "a 1", True, False),
        ("b\na", "a\nb", False, False),
    ],
)
def test_what_is_shown_is_compared_with_what_was_printed(shown, printed, is_near, fits):
    block = Block("text", shown, is_near)
    if fits:
        assert_shown(block, printed)
    else:
        with pytest.raises(AssertionError, match="the page"):
            assert_shown(block, printed)
