"""What README and docs name is there: commands with their options, names that Python imports, targets and scripts.

Nothing is run; docs/test_howto.py says which test runs each block.
"""

import ast
import re
import shlex
from contextlib import suppress
from importlib import import_module

import pytest
import typer

from support.help import all_commands
from support.pages import PAGES, ROOT, blocks_of, lines_of, name_of

COMMANDS = all_commands()
TEXTS = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
BLOCKS = [(name_of(page), block) for page in PAGES for block in blocks_of(page)]
LINES = [(page, line) for page, block in BLOCKS if block.language == "bash" for line in lines_of(block)]
OURS = [(page, line) for page, line in LINES if re.search(r"(^|-m )layerwise ", line)]
PYTHON = [(page, block.text) for page, block in BLOCKS if block.language == "python"]


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """The command that words name, such as "index build", and what follows its name."""
    name = next(name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS)
    return name, words[len(name.split()) :]


def test_there_are_commands_and_python_to_check():
    assert len(OURS) > 100
    assert len(PYTHON) > 20


@pytest.mark.parametrize(("page", "line"), OURS)
def test_a_command_parses(page, line):
    """Unknown options, choices and missing arguments are errors of click's parser; files need not be there."""
    name, words = command_of(shlex.split(line.partition("layerwise ")[2]))
    with suppress(typer.Exit):  # of an option such as --list, which has done its work
        COMMANDS[name].make_context(name, words)


def named_in_text() -> list[tuple[str, str]]:
    """Commands in the middle of a sentence: `layerwise cache clear`, or `analyze MODEL --measure scores`."""
    outside = {page: re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE) for page, text in TEXTS.items()}
    spans = [
        (page, " ".join(span.split())) for page, text in outside.items() for span in re.findall(r"`([^`]+)`", text)
    ]
    programs = "|".join(name for name in COMMANDS if name)
    ours = re.compile(rf"(?:torchrun .*-m )?layerwise [a-z].*|(?:{programs}) [^(]*--\w.*")
    return [(page, span) for page, span in spans if ours.fullmatch(span)]


@pytest.mark.parametrize(("page", "span"), list(dict.fromkeys(named_in_text())))
def test_a_command_in_the_text_has_these_options(page, span):
    """Arguments may be left out there."""
    name, words = command_of(span.partition("layerwise ")[2].split() or span.split())
    context = COMMANDS[name].context_class(COMMANDS[name], info_name=name)
    known = {option for parameter in COMMANDS[name].get_params(context) for option in parameter.opts}
    given = {word.strip("[]").partition("=")[0] for word in words if re.match(r"\[?--?[a-z]", word)}
    assert given <= known, f"{name} has no {given - known}"


def imported_names(code: str) -> list[tuple[str, str]]:
    """(module, name) of each import of ours."""
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [(alias.name, "") for node in found if isinstance(node, ast.Import) for alias in node.names]
    names = [
        (node.module or "", alias.name) for node in found if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    return [(module, name) for module, name in modules + names if module.partition(".")[0] == "layerwise"]


@pytest.mark.parametrize(("page", "code"), PYTHON, ids=[page for page, _ in PYTHON])
def test_names_that_python_imports_are_there(page, code):
    for module, name in imported_names(code):
        assert not name or hasattr(import_module(module), name), f"{module} has no {name}"


def test_targets_and_scripts_are_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page, line in LINES:
        for target in re.findall(r"\bmake ([\w-]+)", line):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), (page, target)
        for script in re.findall(r"\bpython (\S+\.py)", line):
            assert (ROOT / script).is_file(), (page, script)


def test_code_is_in_fences_that_name_its_language():
    for page, text in TEXTS.items():
        assert all(block.language for name, block in BLOCKS if name == page), f"{page}: a fence without a language"
        assert not re.findall(r"^[ \t]+```.*$", text, re.MULTILINE), f"{page}: an indented fence, which no test reads"
        assert not re.findall(r"^(?: {4}|\t)\$? ?layerwise .*$", text, re.MULTILINE), f"{page}: an indented command"
