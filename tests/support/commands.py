"""Running the command line in this process or another, and what it printed."""

import json
import sys
from functools import cache

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from layerwise.cli.app import app, main
from layerwise.cli.schemas import COMMANDS, schema_of

COMMAND = [sys.executable, "-m", "layerwise"]


def call(*arguments) -> str:
    """Run a command in this process: its standard output."""
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def strict_json(text: str):
    """JSON as every program reads it: NaN and Infinity are none."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def call_json(*arguments):
    """What a command prints with --json, which must be as its published schema says."""
    value = strict_json(call(*arguments, "--json"))
    check_schema(value, *arguments)
    return value


def check_schema(value, *arguments) -> None:
    """Fail where a command's output is not what `layerwise schema` promises."""
    words = [str(word) for word in arguments]
    name = next(name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS)
    validator(name).validate(value)


@cache
def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """Validates the JSON of a command."""
    return jsonschema_rs.Draft202012Validator(schema_of(name))


def run_main(monkeypatch, capfd, *arguments) -> tuple[object, str, str]:
    """The entry point of the installed command, in this process: exit code, standard output, standard error."""
    monkeypatch.setattr("sys.argv", ["layerwise", *map(str, arguments)])
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, *capfd.readouterr()


def assert_one_line(code: object, output: str, error: str, *parts: str) -> None:
    assert code == 2
    assert output == ""
    assert len(error.splitlines()) == 1, error
    assert error.startswith("error: ")
    assert "Traceback" not in error
    for part in parts:
        assert part in error, error


def refused(capsys, monkeypatch, *arguments) -> str:
    """The last line of standard error of a command that ends with 2: an error."""
    monkeypatch.setattr("sys.argv", ["layerwise", *map(str, arguments)])
    with pytest.raises(SystemExit, match="2"):
        main()
    error = capsys.readouterr().err.strip()
    assert "Traceback" not in error
    assert error.splitlines()[-1].startswith("error: ")
    return error.splitlines()[-1]
