"""What the README shows is what happens: its Python lines print what it prints, its commands run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from layerwise.cli.app import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
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


def blocks(language: str) -> list[str]:
    """What stands between fences of a language; "" for plain ones."""
    parts = README.split("```")[1::2]
    return [text for name, _, text in (part.partition("\n") for part in parts) if name == language]


def test_the_python_lines_print_what_the_readme_says(tmp_path, forks):
    code, _ = blocks("python")  # the other one is in serve/test_clients
    printed = blocks("")[0]
    done = forks.run(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
    assert (tmp_path / "my-model" / "modules.json").is_file()
    assert len([line for line in code.splitlines() if line]) == 10, "ten lines"


def test_the_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("The cat sat on the mat.\nShares fell.\n")
    (tmp_path / "corpus.csv").write_text("id,body\n1,The cat sat on the mat.\n2,Shares fell.\n")
    pairs = (ROOT / "src/layerwise/data/demo_pairs.csv").read_text().splitlines(keepends=True)
    (tmp_path / "pairs.csv").write_text("".join(pairs[:41]))
    task = '[[task]]\nname = "mine"\nkind = "sts"\nfile = "pairs.csv"\n'
    (tmp_path / "task.toml").write_text(task)
    (tmp_path / "tasks.toml").write_text(TASKS)
    (tmp_path / "moods.csv").write_text("text,label,split\n" + "".join(MOODS))
    lines = [line.split("#")[0] for block in blocks("bash") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("layerwise ")]
    names = ["info", "search", "evaluate", "evaluate", "compare", "analyze", "report", "data", "fit", "recipes"]
    tail = ["multitask", "predict", "embed", "embed", "serve", "cache", "demo"]
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


def test_tables_are_those_of_the_results():
    done = subprocess.run(
        [sys.executable, "benchmarks/tables.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for path, text in ((ROOT, README), (page.parent, page.read_text(encoding="utf-8"))):
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert link.startswith("http") or (path / link).exists(), link
