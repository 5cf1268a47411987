"""All commands of docs/start run, tables and figures are those of the results, and links lead somewhere."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from layerwise.cli.app import app
from support.pages import blocks_of, commands_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = ROOT / "docs" / "start" / "commands.md"
TASKS = """
[[task]]
name = "mood"
kind = "classification"
file = "moods.csv"
splits = { train = "train", dev = "dev" }
[train]
steps = 2
batch_size = 8
"""
MOODS = [
    f"What a {word} day number {day},{word},{'dev' if day > 5 else 'train'}\n"
    for word in ("good", "bad")
    for day in range(8)
]


@pytest.mark.slow  # each command has tests of its own
def test_all_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("The cat sat on the mat.\nShares fell.\n")
    (tmp_path / "corpus.csv").write_text("id,body\n1,The cat sat on the mat.\n2,Shares fell.\n")
    pairs = (ROOT / "src/layerwise/data/demo_pairs.csv").read_text().splitlines(keepends=True)
    (tmp_path / "pairs.csv").write_text("".join(pairs[:41]))
    task = '[[task]]\nname = "mine"\nkind = "sts"\nfile = "pairs.csv"\n'
    (tmp_path / "task.toml").write_text(task)
    (tmp_path / "tasks.toml").write_text(TASKS)
    (tmp_path / "moods.csv").write_text("text,label,split\n" + "".join(MOODS))
    commands = [command for block in blocks_of(COMMANDS) for command in commands_of(block)]
    names = ["info", "search", "evaluate", "evaluate", "compare", "analyze", "report", "data", "fit", "recipes"]
    tail = ["multitask", "predict", "embed", "embed", "index", "query", "dedup", "explain", "serve", "doctor"]
    tail += ["cache", "demo"]
    assert [command[0] for command in commands] == [*names, "train", *tail]
    for command in [command for command in commands if command[0] not in ("serve", "demo")]:
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, (command, result.output, result.exception)
    assert (tmp_path / "vectors" / "part-000000.parquet").is_file()
    assert (tmp_path / "vectors.npy").is_file()
    assert (tmp_path / "best" / "modules.json").is_file()
    assert (tmp_path / "fitted" / "modules.json").is_file()
    assert (tmp_path / "mix.json").is_file()
    assert (tmp_path / "toksim.svg").is_file()
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "trained" / "model" / "modules.json").is_file()
    assert (tmp_path / "labelled.csv").read_text().startswith("id,body,predicted_label,")


@pytest.mark.slow  # what it does is in cli/test_app
def test_the_demo_runs_without_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, (result.output, result.exception)


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([\w-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.parametrize("script", ["tables.py", "views_figure.py", "kinds_figure.py"])
def test_tables_and_figure_are_those_of_the_results(script, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [script, "--check"])
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    problem = None
    try:
        runpy.run_path(f"benchmarks/{script}", run_name="__main__")
    except SystemExit as stop:
        problem = stop.code
    assert not problem


def test_links_of_the_readme_lead_somewhere():
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_links_of_the_docs_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        generated = (page.parent / link).resolve().relative_to(ROOT).as_posix().startswith("docs/reference/")
        assert link.startswith("http") or generated or (page.parent / link).exists(), link
