"""The examples in deploy/: their commands and settings are ours, and valid."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from layerwise.cli.app import app
from layerwise.serve import ServeSettings, read_serve_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKER = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "layerwise.service").read_text(encoding="utf-8")


def parsed(words):
    """The arguments of `layerwise serve` in a command; an unknown one is an error."""
    program, command, *rest = words
    assert Path(program).name == "layerwise"
    found = get_command(app).commands[command]
    return {name: value for name, value in found.make_context(command, rest).params.items() if value}


def instruction(name):
    """What follows a word of the Dockerfile, its lines joined."""
    return re.findall(rf"^{name} (.*)$", DOCKER.replace("\\\n", " "), re.MULTILINE)


def test_the_container_runs_our_command(monkeypatch):
    (entry,), (default,) = instruction("ENTRYPOINT"), instruction("CMD")
    words = json.loads(entry) + json.loads(default)
    assert parsed(words) == {"models": ["default"]}
    environment = dict(pair.split("=", 1) for pair in shlex.split(instruction("ENV")[0]))
    settings = read_serve_settings({"models": ("default",)}, environment)
    assert (settings.host, settings.port, settings.keys) == ("0.0.0.0", 8000, "/run/keys.txt")  # noqa: S104
    assert instruction("EXPOSE") == ["8000"]
    assert instruction("STOPSIGNAL") == ["SIGTERM"]
    root = DEPLOY.parent
    for line in instruction("COPY"):
        *sources, _ = line.split()
        assert all((root / source).exists() for source in sources)


def test_hadolint_finds_nothing_in_the_dockerfile():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_container_has_the_torch_of_the_constraints():
    (pin,) = re.findall(r"^torch==\S+$", (DEPLOY.parent / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert f" {pin} " in " ".join(instruction("RUN"))


def test_the_health_check_of_the_container_runs(server):
    """Its code, with the address of a server that runs."""
    (line,) = re.findall(r"^    CMD (\[.*\])$", DOCKER, re.MULTILINE)
    _, option, code = json.loads(line)
    assert option == "-c"
    exec(code.replace("http://127.0.0.1:8000", server.url), {})  # noqa: S102


def test_the_unit_runs_our_command():
    facts = [line.split("=", 1) for line in UNIT.splitlines() if "=" in line and not line.startswith("#")]
    (command,) = [value for name, value in facts if name == "ExecStart"]
    assert parsed(shlex.split(command))["models"] == ["default"]
    environment = dict(value.split("=", 1) for name, value in facts if name == "Environment")
    settings = read_serve_settings({}, environment, DEPLOY / "serve.toml")
    (stop,) = [float(value) for name, value in facts if name == "TimeoutStopSec"]
    assert stop > settings.drain


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze, which checks the unit, is not installed"
)
def test_systemd_reads_the_unit():
    done = subprocess.run(
        ["systemd-analyze", "verify", DEPLOY / "layerwise.service"], capture_output=True, text=True, check=False
    )
    wrong = [line for line in done.stderr.splitlines() if "Unknown" in line or "Failed to parse" in line]
    assert wrong == []


def test_the_settings_file_names_the_defaults():
    settings = read_serve_settings({}, {}, DEPLOY / "serve.toml")
    assert settings.replaced(keys=None) == ServeSettings()
