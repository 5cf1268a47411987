"""The examples in deploy/ and the pages about them: commands, settings and names are ours, and valid."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from typer.main import get_command

from layerwise.cli.app import app
from layerwise.serve import ServeSettings, read_serve_settings
from layerwise.serve.metrics import Metrics
from support.pages import DOCS, blocks_of
from support.serving import started

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKER = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "layerwise.service").read_text(encoding="utf-8")
SERVING, RUNNING = DOCS / "serving.md", DOCS / "running.md"
KEY = "a-key-for-the-container"
EXTRAS = "'.[serve,index,onnx,postgres,default-model]'"  # what a search service needs


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
    assert environment["HF_HOME"].startswith(environment["LAYERWISE_CACHE"])
    assert instruction("EXPOSE") == ["8000"]
    assert instruction("STOPSIGNAL") == ["SIGTERM"]
    root = DEPLOY.parent
    for line in instruction("COPY"):
        *sources, _ = line.split()
        assert all((root / source).exists() for source in sources)


def test_the_container_and_the_service_install_what_a_search_needs():
    assert instruction("RUN")[1].endswith(EXTRAS)
    assert f"install -c constraints.txt {EXTRAS}" in RUNNING.read_text(encoding="utf-8")


def test_the_containers_that_are_shown_run_our_command():
    lines = DOCKER.replace("#", "").replace("\\\n", " ") + RUNNING.read_text(encoding="utf-8").replace("\\\n", " ")
    shown = [shlex.split(line) for line in re.findall(r"^ *(docker run .*)$", lines, re.MULTILINE)]
    assert len(shown) == 4
    for words in shown:
        (image,) = [number for number, word in enumerate(words) if re.fullmatch(r"layerwise(:\w+)?", word)]
        mounted = {word.split(":")[1] for word in words if word.count(":") == 2}
        given = parsed(["layerwise", "serve", *words[image + 1 :]])
        places = [index.partition("=")[2] for index in given.get("index", [])]
        places += [model for model in given.get("models", []) if model != "default"]
        assert {"/run/keys.txt", *places} == mounted


def test_hadolint_finds_nothing_in_the_dockerfile():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_container_has_the_torch_of_the_constraints():
    (pin,) = re.findall(r"^torch==\S+$", (DEPLOY.parent / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert f" {pin} " in " ".join(instruction("RUN"))


@pytest.mark.slow
def test_the_container_serves_by_its_environment_until_it_is_stopped(tiny_bert, forks, tmp_path):
    """Its command, with a free port and with its keys and cache in another folder, and its health check."""
    (tmp_path / "keys.txt").write_text(f"{KEY}\n")
    environment = dict(pair.split("=", 1) for pair in shlex.split(instruction("ENV")[0]))
    environment |= {"LAYERWISE_SERVE_KEYS": str(tmp_path / "keys.txt"), "LAYERWISE_CACHE": str(tmp_path)}
    (line,) = re.findall(r"^    CMD (\[.*\])$", DOCKER, re.MULTILINE)
    _, option, code = json.loads(line)
    assert option == "-c"
    assert [json.loads(entry) for entry in instruction("ENTRYPOINT")] == [["layerwise", "serve"]]
    with started(forks, tiny_bert, "--backend", "torch", **environment) as (process, url):
        exec(code.replace("http://127.0.0.1:8000", url), {})  # noqa: S102
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {KEY}"}, 200)):
            answer = httpx.post(f"{url}/v1/embeddings", json={"input": "Rain."}, headers=headers)
            assert answer.status_code == status
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_the_unit_runs_our_command():
    facts = [line.split("=", 1) for line in UNIT.splitlines() if "=" in line and not line.startswith("#")]
    (command,) = [value for name, value in facts if name == "ExecStart"]
    assert parsed(shlex.split(command)) == {"config": Path("/etc/layerwise/serve.toml")}
    environment = dict(value.split("=", 1) for name, value in facts if name == "Environment")
    assert environment == {
        "LAYERWISE_CACHE": "/var/cache/layerwise",
        "HF_HOME": "/var/cache/layerwise/huggingface",
    }, "nothing that would win over the file of settings"
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


def rows_of(page, part):
    """The names in the first cells of the tables of a part of a page."""
    text = page.read_text(encoding="utf-8").split(f"\n## {part}\n")[1].split("\n## ")[0]
    return [name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]


def test_the_page_has_every_setting():
    assert sorted(rows_of(SERVING, "Settings")) == sorted(ServeSettings.model_fields)


def test_the_settings_of_the_page_are_read(tmp_path):
    (block,) = [block.text for block in blocks_of(SERVING) if block.language == "toml"]
    (tmp_path / "serve.toml").write_text(block, encoding="utf-8")
    settings = read_serve_settings({}, {}, tmp_path / "serve.toml")
    assert settings == ServeSettings(
        models=("default", "models/best=best"),
        index=("help=help.index",),
        host="0.0.0.0",  # noqa: S104
        port=9000,
        keys="keys.txt",
        max_tokens=4096,
    )
    flags, environment = {"max_tokens": 1}, {"LAYERWISE_SERVE_MAX_TOKENS": "2", "LAYERWISE_SERVE_PORT": "3"}
    won = read_serve_settings(flags, environment, tmp_path / "serve.toml")
    assert (won.max_tokens, won.port, won.host) == (1, 3, "0.0.0.0")  # noqa: S104


def test_the_page_has_every_metric():
    kinds = {metric.name: metric.type for metric in Metrics().registry.collect()}
    names = [f"{name}_total" if kind == "counter" else name for name, kind in kinds.items()]
    assert sorted(rows_of(RUNNING, "Metrics")) == sorted(names)
    alerts = re.findall(r"layerwise_\w+(?=[{\[`])", RUNNING.read_text(encoding="utf-8"))
    assert {name.removesuffix("_bucket") for name in alerts} <= set(names)


def test_prometheus_is_told_where_the_key_is():
    (block,) = [block.text for block in blocks_of(RUNNING) if block.language == "yaml"]
    (job,) = yaml.safe_load(block)["scrape_configs"]
    assert list(job["authorization"]) == ["credentials_file"]
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8000"]}]


def test_the_commands_of_the_service_name_files_that_are_there():
    block = next(block.text for block in blocks_of(RUNNING) if "systemctl enable" in block.text)
    subprocess.run(["bash", "-n", "-c", block], check=True)
    (pin,) = re.findall(r"torch==\S+", block)
    assert f" {pin} " in DOCKER
    copied = re.findall(r"^install -m 0644 (\S+) (\S+)$", block, re.MULTILINE)
    assert [Path(target).name for _, target in copied] == ["serve.toml", "layerwise.service"]
    assert all((DEPLOY.parent / source).is_file() for source, _ in copied)
    written = re.findall(r"/etc/layerwise/[\w.]+", block)
    assert read_serve_settings({}, {}, DEPLOY / "serve.toml").keys in written
