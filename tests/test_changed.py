"""Which tests `make check` runs for a change, and which `make test-slowest` prints."""

from pathlib import Path

import pytest

from support.changed import Project, changed_files, within
from support.durations import add_durations, slowest

SOURCES = {
    "src/layerwise/__init__.py": "",
    "src/layerwise/files.py": "def write(): ...",
    "src/layerwise/search/__init__.py": "if True:\n    from layerwise.search.run import search\n",
    "src/layerwise/search/run.py": "from layerwise.search.scores import score\ndef search(): ...",
    "src/layerwise/search/scores.py": "def score(): ...",
    "src/layerwise/search/page.css": "",
    "src/layerwise/report/__init__.py": "",
    "src/layerwise/report/build.py": "from layerwise.search import search",
    "tests/search/test_run.py": "from layerwise.search import search\nfrom support.rows import rows",
    "tests/search/test_other.py": "from layerwise.files import write",
    "tests/report/test_build.py": '"""Pages."""\ndef test_a():\n    """One page.\n\n    More."""\ndef test_b(): ...',
    "tests/report/test_found.py": "def test_it():\n    from layerwise.search import search\n",
    "tests/support/rows.py": "from layerwise.search.scores import score",
    "tests/test_project_files.py": "",
}


IMPORTED = {
    "layerwise": set(),
    "layerwise.files": set(),
    "layerwise.search": {"layerwise.search.run"},
    "layerwise.search.run": {"layerwise.search.scores"},
    "layerwise.search.scores": set(),
    "layerwise.report": set(),
    "layerwise.report.build": {"layerwise.search"},
}


class Graph:
    """What grimp says of the sources above."""

    modules = frozenset(IMPORTED)

    def find_modules_directly_imported_by(self, module):
        return IMPORTED[module]


@pytest.fixture
def project(tmp_path):
    for name, source in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    return Project(tmp_path, Graph())


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["src/layerwise/search/run.py"], ["search/test_run.py", "report/test_found.py"]),
        (["src/layerwise/search/scores.py"], ["search/test_run.py"]),
        (["src/layerwise/files.py"], ["search/test_other.py"]),
        (["src/layerwise/search/page.css"], ["search/test_other.py", "search/test_run.py"]),
        (["src/layerwise/search/__init__.py"], ["search/test_other.py", "search/test_run.py"]),
        (["src/layerwise/report/build.py"], ["report/test_build.py"]),
        (["src/layerwise/gone.py", "benchmarks/speed.py"], []),
        (["tests/support/rows.py"], ["search/test_run.py"]),
        (["tests/report/test_found.py", "src/layerwise/files.py"], ["report/test_found.py", "search/test_other.py"]),
        (["tests/report/conftest.py"], ["report/test_build.py", "report/test_found.py"]),
        (["Makefile"], ["test_project_files.py"]),
    ],
    ids=str,
)
def test_the_tests_of_a_change_are_those_of_its_room_that_reach_it_and_those_that_import_it(project, changed, chosen):
    assert sorted(project.tests_of(changed)) == sorted(f"tests/{name}" for name in chosen)


def test_the_nearest_test_comes_first(project):
    chosen = project.tests_of(["src/layerwise/search/run.py"])
    assert chosen == ["tests/search/test_run.py", "tests/report/test_found.py"]


def test_as_many_files_run_as_the_time_allows_and_at_least_one():
    durations = {"a.py::one": 20.0, "a.py::two[x]": 15.0, "b.py::one": 30.0}
    assert within(["a.py", "b.py", "c.py"], durations, 70.0) == ["a.py", "b.py", "c.py"]
    assert within(["a.py", "b.py", "c.py"], durations, 50.0) == ["a.py"]
    assert within(["a.py", "b.py"], durations, 10.0) == ["a.py"]
    assert within([], durations, 10.0) == []


def test_what_changed_is_unknown_without_git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert changed_files(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert changed_files(Path(__file__).parent) is None


class Report:
    def __init__(self, nodeid, when, duration):
        self.nodeid, self.when, self.duration = nodeid, when, duration


def test_the_slowest_tests_are_printed_with_their_purpose_and_tests_that_are_gone_are_not(project):
    reports = [
        Report("tests/report/test_build.py::test_a", "setup", 1.0),
        Report("tests/report/test_build.py::test_a", "call", 2.0),
        Report("tests/report/test_build.py::test_b[x-1]", "call", 4.0),
        object(),
    ]
    durations = add_durations({"tests/report/test_build.py::test_gone": 9.0, "tests/gone.py::test_a": 8.0}, reports)
    assert slowest(durations, project.root) == [
        "  4.00 s  tests/report/test_build.py::test_b[x-1]\n          Pages.",
        "  3.00 s  tests/report/test_build.py::test_a\n          One page.",
    ]
    assert slowest(durations, project.root, count=1) == [
        "  4.00 s  tests/report/test_build.py::test_b[x-1]\n          Pages."
    ]
