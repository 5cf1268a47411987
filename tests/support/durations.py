"""What each test took when it last ran here, kept in pytest's cache; run as a script, the slowest of them.

`make test-slowest` prints them, and `make check` plans with them (`support/changed.py`).
"""

import ast
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

KEY = "layerwise/durations"


def add_durations(known: Mapping[str, float], reports: Iterable) -> dict[str, float]:
    """The known seconds with those of a run: set-up, call and teardown of each of its tests."""
    took: dict[str, float] = {}
    for report in reports:
        if hasattr(report, "when") and hasattr(report, "duration"):
            took[report.nodeid] = took.get(report.nodeid, 0.0) + report.duration
    return {**known, **{test: round(seconds, 3) for test, seconds in took.items()}}


def read_durations(root: Path) -> dict[str, float]:
    file = root / ".pytest_cache" / "v" / KEY
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def slowest(durations: Mapping[str, float], root: Path, count: int = 30) -> list[str]:
    """A line for each of the slowest tests: seconds, name, what it is for; tests that are gone have none."""
    lines: list[str] = []
    for test, seconds in sorted(durations.items(), key=lambda item: -item[1]):
        purpose = purpose_of(test, root)
        if purpose is not None and len(lines) < count:
            lines.append(f"{seconds:6.2f} s  {test}\n          {purpose}")
    return lines


def purpose_of(test: str, root: Path) -> str | None:
    """The first line of a test's docstring or, without one, of its file's; None where there is no such test."""
    file, *_, name = test.split("::")
    docstrings = docstrings_of(root / file)
    name = name.partition("[")[0]
    return (docstrings[name] or docstrings[""]) if name in docstrings else None


@cache
def docstrings_of(file: Path) -> dict[str, str]:
    """First lines of the docstrings of a file's functions; the file's own by the empty name."""
    if not file.is_file():
        return {}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = {"": tree} | {node.name: node for node in functions}
    return {name: (ast.get_docstring(node) or "").partition("\n")[0] for name, node in named.items()}


if __name__ == "__main__":
    ROOT = Path(__file__).parents[2]
    LINES = slowest(read_durations(ROOT), ROOT)
    print("\n".join(LINES) or "no run yet: `make test` measures the tests")
