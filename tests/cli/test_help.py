"""Every `--help`: examples that the command itself accepts, and lines that fit the screen."""

import shlex
from contextlib import suppress

import pytest
import typer
from typer.testing import CliRunner

from layerwise.cli.app import app
from layerwise.cli.examples import EXAMPLES
from layerwise.train import load_recipe
from support.help import all_commands

COMMANDS = all_commands()


def shown(command: str, width: int) -> list[str]:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": str(width)}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout.splitlines()


def test_every_command_has_examples_and_no_other():
    assert {"index build", "query", "dedup", "cluster", "explain", "serve", "doctor", "cache clear"} <= set(COMMANDS)
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_screen_and_breaks_no_example(command):
    for width in (60, 80):
        lines = shown(command, width)
        assert max(map(len, lines)) <= width
        assert "…" not in "".join(lines), "a name is cut"
        whole = [line.strip() for line in lines]
        for example in EXAMPLES[command]:
            assert example in whole, (width, example)


LINES = [(command, line) for command, lines in EXAMPLES.items() for line in lines]


@pytest.mark.parametrize(("command", "line"), LINES, ids=[line for _, line in LINES])
def test_an_example_is_a_command_that_parses(command, line):
    """Unknown options, missing arguments and wrong types are errors of click's parser; nothing is run."""
    program, *words = shlex.split(line)
    assert program == "layerwise"
    assert command == "" or words[: len(command.split())] == command.split()
    if words == ["--install-completion"]:
        assert "--install-completion" in "\n".join(shown("", 80))
        return
    name = words[0] if words[0] in COMMANDS else pytest.fail(f"no such command: {words[0]}")
    if len(words) > 1 and f"{name} {words[1]}" in COMMANDS:
        name = f"{name} {words[1]}"
    with suppress(typer.Exit):  # of an option such as --list, which has done its work
        COMMANDS[name].make_context(name, words[len(name.split()) :])


def test_examples_name_recipes_that_there_are():
    named = [shlex.split(line)[2:3] for command in ("train", "recipes") for line in EXAMPLES[command]]
    names = [name for words in named for name in words if not name.startswith("-")]
    assert len(names) == 2
    assert [load_recipe(name).name for name in names] == names


def test_completion_is_offered_for_shells(monkeypatch):
    monkeypatch.setenv("_LAYERWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "layerwise sea")
    monkeypatch.setenv("COMP_CWORD", "1")
    result = CliRunner().invoke(app, [], prog_name="layerwise")
    assert result.stdout.split() == ["search"]
