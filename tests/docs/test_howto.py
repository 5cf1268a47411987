"""The how-to pages run as they stand, by tiny models and made-up files, and every block of every page has its test.

A line that no test runs is in `NOT_RUN`, with the reason; what tests of other files run is in `ELSEWHERE`.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from layerwise.cli.app import app
from layerwise.data import load_task, read_task_file
from layerwise.model import LayerModel
from support.commands import call, refused
from support.mteb_tasks import import_mteb, mteb_task
from support.pages import DOCS, PAGES, ROOT, Block, assert_shown, blocks_of, commands_of, lines_of, name_of, run_python
from support.postgres import postgres_server
from support.serving import running, started
from support.slow_cases import most_slow, one_in
from support.tiny import WORDS
from support.workspace import WITH_HEAD, link_data, link_models, save_data, save_files, save_models

NOT_RUN = {  # how a line begins -> why no test runs it
    "pipx install": "installs; tried by hand",
    "uv tool install": "`make dist` does",
    "/opt/layerwise/bin/pip": "installs from the network, as root",
    "createdb ": "a database server of the reader's; index/test_postgres.py has its own",
    "docker ": "needs docker; serve/test_deploy.py checks the image's file and the command in it",
    "export ": "settings of the reader's shell",
    "install ": "installs a service, as root; serve/test_deploy.py checks that these files are there",
    "layerwise data fetch": "downloads; data/test_fetch.py has servers of its own",
    "layerwise embed MODEL INPUT -o OUT --engine ray": "needs a Ray cluster; embed/test_ray.py starts one",
    "layerwise train small-prompt-distil-two": "a teacher from the hub; train/contrastive/test_engine.py has two",
    "layerwise train simcse-unsup": "BERT-base and a million sentences from the hub",
    "make ": "sets up the environment, runs all tests, or measures for hours",
    "openssl ": "writes the key of a service that is not installed here",
    "pip install": "installs from the network; `make dist` installs the wheel",
    'python -c "from huggingface_hub': "downloads from the hub",
    "python benchmarks/": "measures for hours, most of it on a GPU",
    "python3 -m venv /opt": "installs a service, as root",
    "source .venv": "sets up the reader's shell",
    "systemctl ": "needs systemd, as root; serve/test_deploy.py checks the unit",
    "torchrun ": "four GPUs, and triples from the hub; train/test_distributed.py runs torchrun on this machine",
    "useradd ": "installs a service, as root",
}

IN_TABLE = "index/test_postgres.py::test_the_commands_of_the_page_run"
CHANGED = "index/test_postgres.py::test_rows_are_changed_while_a_table_is_open_as_the_page_says"
TOLD = "docs/test_pages.py::test_a_page_runs_and_prints_what_it_shows"
ELSEWHERE = {  # page ("": any) and how a line or block begins -> the test that runs it; the longest beginning counts
    ("", "layerwise serve"): "docs/test_howto.py::test_every_server_of_the_pages_starts",
    ("README.md", ""): "docs/test_pages.py::test_the_examples_of_the_readme_print_what_it_shows",
    ("README.md", "from openai"): "serve/test_clients.py::test_the_lines_of_the_readme_run",
    ("docs/indexing.md", ""): "index/test_docs.py::test_the_commands_of_the_page_run_and_print_what_it_shows",
    ("docs/indexing.md", "import psycopg"): "index/test_postgres.py::test_the_sql_of_the_page_prints_what_it_shows",
    ("docs/indexing.md", "layerwise embed default corpus.csv"): IN_TABLE,
    ("docs/indexing.md", "layerwise index load"): IN_TABLE,
    ("docs/indexing.md", "layerwise query postgresql:"): IN_TABLE,
    ("docs/mixes.md", "from layerwise import LayerEncoder, LayerTransformer"): (
        "model/test_layer_transformer.py::test_the_lines_of_the_documentation_run"
    ),
    ("docs/running.md", "curl "): "docs/test_howto.py::test_a_key_is_checked_as_the_page_says",
    ("docs/running.md", "layerwise index load"): CHANGED,
    ("docs/running.md", "psql "): CHANGED,
    ("docs/running.md", "scrape_configs:"): "serve/test_deploy.py::test_prometheus_is_told_where_the_key_is",
    ("docs/serving.md", "curl "): "docs/test_pages.py::test_the_server_answers_curl_as_its_page_says",
    ("docs/serving.md", "from "): "serve/test_clients.py::test_the_lines_of_the_docs_run",
    ("docs/serving.md", "models = "): "serve/test_deploy.py::test_the_settings_of_the_page_are_read",
    ("docs/serving.md", '{"error"'): "docs/test_howto.py::test_the_server_refuses_as_the_page_says",
    ("docs/start/commands.md", ""): "test_readme.py::test_all_commands_run",
    ("docs/start/commands.md", "error: "): "docs/test_howto.py::test_a_mistake_is_told_as_the_page_says",
    ("docs/start/commands.md", "layerwise demo"): "test_readme.py::test_the_demo_runs_without_options",
    ("docs/start/ten-minutes.md", ""): "docs/test_pages.py::test_ten_minutes_run_with_their_report",
    ("docs/stores.md", ""): "embed/test_s3.py::test_the_commands_of_the_page_run_and_print_what_it_shows",
    ("docs/tutorials/domain-encoder.md", ""): TOLD,
    ("docs/tutorials/fewer-blocks.md", ""): TOLD,
    ("docs/tutorials/search-service.md", ""): "docs/test_pages.py::test_the_search_service_answers_as_the_page_says",
    ("docs/tutorials/several-tasks.md", ""): TOLD,
    ("docs/tutorials/small-llm.md", ""): "docs/test_pages.py::test_a_small_language_model_is_searched_as_the_page_says",
    ("docs/tutorials/training-with-layers.md", ""): TOLD,
}


@dataclass(frozen=True)
class HowTo:
    """What a page takes for granted.

    Args:
        before: Commands whose results it reads.
        tables: The files that its TOML blocks are.
        names: What its Python lines have from the reader.
    """

    before: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    names: Callable[[], dict[str, object]] = dict


def bridges() -> dict[str, object]:
    """mteb with a task in memory, and a trainer that calls its evaluator once."""
    (task,) = read_task_file("my-task.toml")
    model = LayerModel.load("my-model")
    return {
        "mteb": import_mteb(),
        "tasks": [mteb_task(load_task(task))],
        "SentenceTransformerTrainer": lambda *_, evaluator: evaluator(model),
    }


EVALUATED = ("--layers 1 -o other.json", "-o a.json", "--layers 1 -o b.json", "--layers 2 -o c.json")
HOW_TO = {
    "docs/analyze.md": HowTo(),
    "docs/benchmarks/run.md": HowTo(),
    "docs/cache.md": HowTo(before=("evaluate MODEL --tasks my-task.toml",)),
    "docs/cluster.md": HowTo(),
    "docs/embed.md": HowTo(),
    "docs/evaluate.md": HowTo(
        before=(
            *(f"evaluate my-model --tasks my-task.toml {options}" for options in EVALUATED),
            "evaluate my-model --tasks my-task.toml --layers each -o every-layer.json",
            "evaluate my-model --tasks tickets.toml --tasks manuals.toml",
        ),
        tables=("tickets.toml", "manuals.toml"),
        names=bridges,
    ),
    "docs/explain.md": HowTo(),
    "docs/mixes.md": HowTo(),
    "docs/multitask.md": HowTo(tables=("my-tasks.toml",)),
    "docs/running.md": HowTo(),
    "docs/search.md": HowTo(tables=("mine.toml",)),
    "docs/serving.md": HowTo(),
    "docs/start/install.md": HowTo(),
    "docs/train.md": HowTo(
        before=("train extended.toml --model MODEL --dev none --no-test",),
        tables=("extended.toml", "my-recipe.toml", "my-dev.toml"),
    ),
}
QUICK = {f"docs/{name}.md" for name in ("benchmarks/run", "cache", "embed", "explain", "mixes", "running")}
PLACES = {"INPUT": "corpus.txt", "OUT": "vectors"}
EXITS = {"layerwise data check": 2}  # the rows are not the published ones


def owner_of(page: str, text: str) -> str | None:
    """The test of another file, or of another kind, that runs a line or a block."""
    named = [key for key in ELSEWHERE if key[0] in ("", page) and text.startswith(key[1])]
    return ELSEWHERE[max(named, key=lambda key: len(key[1]))] if named else None


def is_not_run(line: str) -> bool:
    return line.startswith(tuple(NOT_RUN))


def parts_of(block: Block) -> list[str]:
    """What is run by itself: a line of a bash block, any other block as a whole."""
    return lines_of(block) if block.language == "bash" else [block.text]


# Every block has its test


ALL = [(name_of(page), block) for page in PAGES for block in blocks_of(page)]


def test_every_block_is_run_compared_or_named():
    for page, block in ALL:
        if block.language in ("text", "toml") and (page in HOW_TO or owner_of(page, "")):
            continue  # an output is compared by the test of its commands, a TOML block is a file that they read
        for part in parts_of(block):
            test = owner_of(page, part)
            if block.language == "bash" and not part.startswith("layerwise "):
                is_ours = test is not None and test != owner_of(page, "")  # a page's test runs our commands alone
            else:
                is_ours = test is not None or page in HOW_TO
            assert is_ours or is_not_run(part), f"{page}: no test runs {part.splitlines()[0]!r}; add it to one"


def test_nothing_is_named_in_vain():
    parts = [(page, part) for page, block in ALL for part in parts_of(block)]
    lines = [part for page, block in ALL if block.language == "bash" for part in parts_of(block)]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in lines)] == []
    used = {owner_of(page, part) for page, part in parts}
    assert [test for test in ELSEWHERE.values() if test not in used] == []
    for page, start in ELSEWHERE:
        assert not page or any(part.startswith(start) for name, part in parts if name == page), (page, start)
    assert HOW_TO.keys() <= {page for page, _ in ALL}


@pytest.mark.parametrize("key", ELSEWHERE, ids=" ".join)
def test_the_test_that_is_named_reads_the_page(key):
    (page, _), (file, _, name) = key, ELSEWHERE[key].partition("::")
    code = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert f"\ndef {name}(" in code
    assert Path(page).name in code


# The pages run


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return save_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def workspace(models, data, tmp_path, monkeypatch):
    """The current folder has everything that pages name."""
    link_models(models, tmp_path)
    link_data(data, tmp_path)
    save_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYERWISE_DATA", "FOLDER")
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))
    return tmp_path


def run_line(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "layerwise", f"{line}: runs another program"
    if words[0] == "train" and "--suggest" not in words:
        words += ["--set", "train.steps=4"]  # instead of up to 10,000
    places = PLACES | ({"MODEL": WITH_HEAD} if "--head" in words else {})
    code = next((code for start, code in EXITS.items() if line.startswith(start)), 0)
    done = CliRunner().invoke(app, [places.get(word, word) for word in words], catch_exceptions=False)
    assert done.exit_code == code, f"{line}\n{done.output}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", one_in(2, most_slow(HOW_TO, now=QUICK)))
def test_a_page_runs(page, workspace, capsys):
    """Line by line, in one folder and with one set of names."""
    how, blocks = HOW_TO[page], blocks_of(ROOT / page)
    tables = [block.text for block in blocks if block.language == "toml" and not owner_of(page, block.text)]
    for name, text in zip(how.tables, tables, strict=True):
        Path(name).write_text(text, encoding="utf-8")
    for line in how.before:
        call(*shlex.split(line))
    names = {"__name__": "__main__"} | how.names()
    for block in blocks:
        for part in parts_of(block) if block.language in ("bash", "python") else ():
            if owner_of(page, part) or is_not_run(part):
                continue
            if block.language == "bash":
                run_line(part)
            else:
                run_python(part, names)


# What a page shows, by the real model


def shown_in(page: str) -> list[tuple[Block, Block]]:
    """A block of code, and the output that follows it."""
    shown = [(code, text) for code, text in pairwise(blocks_of(ROOT / page)) if text.language == "text"]
    return [(code, text) for code, text in shown if owner_of(page, code.text) is None]


def shown_case(page: str, number: int, code: Block) -> object:
    marks = [] if page == "docs/explain.md" else [pytest.mark.slow]
    return pytest.param(page, number, marks=[*marks, *([pytest.mark.shared] if "stsb -o" in code.text else [])])


SHOWN = [shown_case(page, number, code) for page in HOW_TO for number, (code, _) in enumerate(shown_in(page))]


def test_an_output_follows_its_code():
    assert len(SHOWN) == 4
    for (page, before), (_, block) in pairwise(ALL):
        if block.language == "text":
            assert before.language in ("bash", "python"), f"{page}: {block.text.splitlines()[0]!r} follows no code"


@pytest.mark.parametrize(("page", "number"), SHOWN)
def test_a_page_shows_what_is_printed(page, number, tmp_path, monkeypatch, request):
    code, text = shown_in(page)[number]
    monkeypatch.chdir(tmp_path)
    if "stsb" in code.text and code.language == "bash":
        monkeypatch.setenv("LAYERWISE_DATA", str(request.getfixturevalue("shared") / "data"))
    printed = [call(*words) for words in commands_of(code)] or [run_python(code.text, {})]
    assert_shown(text, "".join(printed))


# Servers, and what they answer


KEY = "0123456789abcdef"
SERVERS = sorted({line for _, block in ALL for line in parts_of(block) if line.startswith("layerwise serve")})


@pytest.mark.slow
@pytest.mark.parametrize("line", SERVERS)
def test_every_server_of_the_pages_starts(line, workspace, forks):
    """On any free port, two processes where the page has eight, and with a table of a database made here."""
    Path("best").symlink_to("default")
    call("embed", "default", "help.csv", "-o", "vectors", "--keep", "id", "--keep", "text")
    for name in ("papers", "corpus", "help"):
        call("index", "build", "vectors", "-o", f"{name}.index")
    Path("keys.txt").write_text(f"{KEY}\n", encoding="utf-8")
    words = [{"9000": "0", "8": "2"}.get(word, word) for word in shlex.split(line)[2:]]
    if "postgresql:" not in line:
        with started(forks, *words):
            return
    with postgres_server() as address:
        call("index", "load", "vectors", "--to", address.format("papers"))
        with started(forks, *(re.sub("postgresql:.*", lambda _: address.format("papers"), word) for word in words)):
            return


@pytest.fixture
def server(models, tmp_path):
    """The stand-in for the default model, with a key."""
    (tmp_path / "keys.txt").write_text(f"{KEY}\n", encoding="utf-8")
    headers = {"Authorization": f"Bearer {KEY}"}
    with running({"default": LayerModel.load(models / "default")}, headers, keys=str(tmp_path / "keys.txt")) as server:
        yield server


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_key_is_checked_as_the_page_says(server, monkeypatch):
    (line,) = [line for block in blocks_of(DOCS / "running.md") for line in parts_of(block) if line.startswith("curl ")]
    line = line.replace("http://127.0.0.1:8000", server.url)
    for key, status in ((KEY, "200"), ("another", "401")):
        monkeypatch.setenv("KEY", key)
        done = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True, timeout=60)
        assert done.stdout == f"{status}\n"


def test_the_server_refuses_as_the_page_says(server):
    shown = [json.loads(block.text) for block in blocks_of(DOCS / "serving.md") if block.language == "json"]
    requests = ({"input": "rain", "layers": "9"}, {"input": " ".join(WORDS[:1] * 300)})
    assert [server.post("/v1/embeddings", **request).json() for request in requests] == shown


def test_a_mistake_is_told_as_the_page_says(models, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    link_models(models, tmp_path)
    Path("corpus.csv").write_text("text\n" + "rain\n" * 15 + '""\n', encoding="utf-8")
    (shown,) = [block.text for block in blocks_of(DOCS / "start" / "commands.md") if block.language == "text"]
    assert refused(capsys, monkeypatch, "embed", "default", "corpus.csv", "-o", "vectors") == shown.strip()
