"""What surrounds the code: workflows, issue templates, citation, versions, and what the packages hold."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from shutil import which

import pytest
import yaml

from layerwise.version import __version__

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read_yaml(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps_of(path: Path) -> list[dict]:
    return [step for job in read_yaml(path)["jobs"].values() for step in job["steps"]]


# Workflows


def test_there_are_workflows_for_tests_all_tests_docs_and_release():
    assert [path.stem for path in WORKFLOWS] == ["docs", "nightly", "release", "tests"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_sound(path):
    """Its form, the versions of its actions, jobs that wait for jobs that exist, and no more rights than needed."""
    workflow = read_yaml(path)
    assert workflow["name"] == path.stem
    assert workflow[True], "`on:`, which YAML reads as true"
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert re.fullmatch(r"ubuntu-\d\d\.\d\d", job["runs-on"])
        needs = job.get("needs", [])
        assert {needs} if isinstance(needs, str) else set(needs) <= set(workflow["jobs"])
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", step["uses"]), "pinned by its whole version"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_of_a_workflow_exist(path):
    commands = [step["run"] for step in steps_of(path) if "run" in step]
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)
    targets = [target for command in commands for target in re.findall(r"\bmake ([\w-]+)", command)]
    assert targets, "the Makefile says what is run"
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_the_release_is_refused_where_the_tag_is_not_the_version(tmp_path):
    (check,) = [step["run"] for step in steps_of(ROOT / ".github/workflows/release.yml") if "version.py" in str(step)]
    for tag, code in ((f"v{__version__}", 0), ("v99.0.0", 1)):
        done = subprocess.run(["bash", "-c", check], cwd=ROOT, env={"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"})
        assert done.returncode == code


def test_the_docs_that_are_published_are_those_built():
    config = ROOT / "mkdocs.yml"
    (folder,) = [
        step["with"]["path"] for step in steps_of(ROOT / ".github/workflows/docs.yml") if "upload-pages" in str(step)
    ]
    stated = re.search(r"^site_dir: *(\S+)", config.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert folder == (stated[1] if stated else "site")


def test_python_versions_are_those_declared():
    matrix = read_yaml(ROOT / ".github/workflows/tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    declared = [line.split("::")[-1].strip() for line in PROJECT["project"]["classifiers"] if ":: 3." in line]
    assert matrix == declared
    assert PROJECT["project"]["requires-python"] == f">={declared[0]}"


# Issue templates, citation, changelog


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms_have_what_github_requires(name):
    form = read_yaml(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert form["name"]
    assert form["description"]
    ids = [item["id"] for item in form["body"]]
    assert len(ids) == len(set(ids))
    for item in form["body"]:
        assert item["type"] in ("textarea", "input", "dropdown", "checkboxes", "markdown")
        assert item["attributes"]["label"]


def test_the_citation_is_of_this_version():
    citation = read_yaml(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["project"]["license"]


def test_the_changelog_begins_with_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changelog, flags=re.MULTILINE)
    assert headings[0] == f"{__version__} (unreleased)" or re.fullmatch(
        rf"{re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)", headings[0]
    )
    first = changelog.split("\n## ")[1]
    assert "### In short" in first, "what a user reads first"


# Set-up


def test_the_demo_installs_only_what_it_needs_and_says_what_it_waits_for():
    done = subprocess.run(["make", "-n", "-B", "demo"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert ".[demo]" in done.stdout
    assert not re.search(r"\[[^\]]*(dev|docs|bench|all)", done.stdout), "tools of the tests, docs or benchmarks"
    assert [line for line in done.stdout.splitlines() if line.startswith('echo "set-up: torch')]
    assert done.stdout.splitlines()[-1] == ".venv/bin/layerwise demo --out demo-output"


# Packages


def files_of_the_project() -> list[str]:
    """What git has or would add; without git, what is there beside hidden, built and measured files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False) if which("git") else None
    if files is not None and not files.returncode:
        return [name for name in files.stdout.split("\0") if name]
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".") and path.name not in ("build", "dist")]
    inside = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    return [path.relative_to(ROOT).as_posix() for path in inside if path.is_file() and "__pycache__" not in path.parts]


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A wheel and a source distribution, built from a copy of the project's files, by the declared backend."""
    folder = tmp_path_factory.mktemp("packages")
    copy = folder / "source"
    for name in files_of_the_project():
        if (ROOT / name).is_file() and not name.startswith("benchmarks/results"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    code = f"from setuptools import build_meta as b; b.build_sdist({str(folder)!r}); b.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(packages):
    (wheel,) = packages.glob("*.whl")
    assert wheel.name == f"layerwise-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name for name in names if not name.startswith(f"layerwise-{__version__}.dist-info/")}
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "layerwise").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert inside == expected
    assert {"layerwise/data/catalog.toml", "layerwise/report/page.css", "layerwise/py.typed"} <= inside
    assert wheel.stat().st_size < 2_000_000


def test_the_source_distribution_builds_the_package_and_holds_no_data_of_others(packages):
    (archive,) = packages.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        members = file.getmembers()
    top = f"layerwise-{__version__}/"
    names = {member.name.removeprefix(top) for member in members}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "src/layerwise/py.typed"} <= names
    assert not [name for name in names if name.startswith(("shared", "benchmarks", ".venv", "build"))]
    assert not [name for name in names if name.endswith((".safetensors", ".npy", ".bin", ".pyc"))]
    allowed = {"demo_pairs.csv", "demo_corpus.txt"}
    assert {Path(name).name for name in names if name.endswith((".csv", ".parquet"))} <= allowed
    assert archive.stat().st_size < 3_000_000
