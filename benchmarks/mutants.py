"""Which small faults of the source do the tests notice? A fixed sample of mutants, before and after the tests changed.

    python benchmarks/mutants.py sample mutants.json                                  # needs cosmic-ray, once
    python benchmarks/mutants.py run mutants.json before.json --root ../base          # a checkout: its source and tests
    python benchmarks/mutants.py run mutants.json after.json --killed-in before.json  # or all of them again
    python benchmarks/mutants.py compare before.json after.json --out benchmarks/results/mutants.json

`sample` draws mutants of `TARGETS` by a fixed seed: at most one of each place and kind of operator that cosmic-ray
knows, and none that changes annotations only. A mutant is kept as whole lines and the function that holds them, so that
`run` finds it again where lines have moved; one whose lines are nowhere any more is counted as gone. The results hold
the mutants, too: `run benchmarks/results/mutants.json after.json` takes them from there.

`run` imports what is slow once and forks: first for each test file of `TESTS`, to see which tests reach which line,
then for each mutant, with a copy of the source that holds it, to run those that reach its statement until one fails.
Tests that fail without any mutant are left out. A mutant is killed where a test fails, or where the tests take three
times as long. `compare` exits with 1 where a mutant that was killed before is not any more. 300 mutants take six
minutes on 16 cores, most of them for those that survive.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

TARGETS = {
    "search": ("search", 150),
    "taps": ("encoder/taps", 50),
    "files": ("files", 50),
    "service": ("serve/service", 50),
}
TESTS = {  # of each room and those closest to it
    "search": ("search/*", "evidence/*", "kinds/*", "model/*", "cli/test_search*", "cli/test_fit*"),
    "taps": ("encoder/*", "model/*"),
    "files": ("test_files*", "stores/*", "data/*"),
    "service": ("serve/*",),
}
SLOW = (
    *("numpy", "scipy.stats", "scipy.optimize", "sklearn.linear_model", "sklearn.metrics", "sklearn.model_selection"),
    *("pyarrow.parquet", "pyarrow.csv", "torch", "transformers", "sentence_transformers", "onnx", "onnxruntime"),
    *("fastapi.testclient", "uvicorn", "httpx", "typer.testing", "rich.table", "pydantic", "prometheus_client"),
    *("jinja2", "hypothesis.strategies", "coverage"),
)
LONGEST = 60  # seconds that a mutant's tests may take at least
KILLED = ("killed", "timeout", "crashed")
Mutant = dict[str, Any]
Statement = ast.stmt | ast.ExceptHandler | ast.match_case

# --- the sample -------------------------------------------------------------------------------------------------------


def sample(src: Path, seed: int) -> list[Mutant]:
    """Return the mutants, in the order of their files and lines."""
    package, drawn = src / "layerwise", []
    for room, (where, count) in TARGETS.items():
        path = package / where
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        places = [(file, ways) for file in files for ways in _places(file)]
        random.Random(f"{seed} {room}").shuffle(places)
        made = (_mutant(file, ways) for file, ways in places)
        taken = islice(filter(None, made), count)
        drawn += [{"room": room, "file": file.relative_to(package).as_posix(), **one} for file, one in taken]
        print(f"{room}: {len(places)} places", file=sys.stderr)
    drawn.sort(key=lambda mutant: (mutant["file"], mutant["line"], mutant["operator"], mutant["new"]))
    return [{"id": number, **mutant} for number, mutant in enumerate(drawn)]


def _places(file: Path) -> list[list[tuple[str, int]]]:
    """Return the ways to mutate each place of a file, as operators and occurrences, in the order of a fixed seed."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    nodes = list(ast_nodes(get_ast(file.read_text(encoding="utf-8"))))
    kinds: dict[tuple[Any, str], list[tuple[str, int]]] = defaultdict(list)
    for operator in plugins.operator_names():
        if not plugins.get_operator(operator).arguments():
            made = plugins.get_operator(operator)()
            found = (place for node in nodes for place in made.mutation_positions(node))
            for occurrence, place in enumerate(found):
                kinds[place, operator.partition("/")[2].partition("_")[0]].append((operator, occurrence))
    for place, ways in kinds.items():
        random.Random(f"{file.name} {place}").shuffle(ways)
    return [kinds[place] for place in sorted(kinds)]


def _mutant(file: Path, ways: Sequence[tuple[str, int]]) -> tuple[Path, Mutant] | None:
    """Return the first of these mutants that means something else than the source."""
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    source = file.read_text(encoding="utf-8")
    for operator, occurrence in ways[:3]:
        mutated = mutate_code(source, plugins.get_operator(operator)(), occurrence)
        if mutated and _meaning(mutated) not in (_meaning(source), None):
            return file, {"operator": operator.partition("/")[2], **_changed(source, mutated)}
    return None


def _meaning(source: str) -> str | None:
    """Return the syntax tree without annotations, docstrings and type aliases; None where it is not Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if hasattr(node, name):
                setattr(
                    node, name, ast.Constant(0) if name == "annotation" and isinstance(node, ast.AnnAssign) else None
                )
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
        if isinstance(node, ast.Module | ast.ClassDef):  # `Array = A | B`: a mutant would only fail to import
            node.body = [
                one
                for one in node.body
                if not (
                    isinstance(one, ast.Assign) and isinstance(one.value, ast.BinOp) and "|" in ast.unparse(one.value)
                )
            ]
        if isinstance(node, ast.arguments):  # a bare `*` is no product
            node.args, node.posonlyargs, node.kwonlyargs = [*node.posonlyargs, *node.args, *node.kwonlyargs], [], []
            node.defaults, node.kw_defaults = [*node.defaults, *filter(None, node.kw_defaults)], []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("TypeVar", "cast"):
            node.args = node.args[1:]
    return ast.dump(tree)


def _changed(source: str, mutated: str) -> Mutant:
    """Return the whole lines that differ, the function around them, and how often they stand in it before."""
    old, new = source.splitlines(), mutated.splitlines()
    first = next(number for number, (one, other) in enumerate(zip(old, new, strict=False)) if one != other)
    ends = next(
        (number for number, (one, other) in enumerate(zip(old[::-1], new[::-1], strict=False)) if one != other), 0
    )
    ends = min(ends, len(old) - first - 1, len(new) - first)
    lines, others = old[first : len(old) - ends], new[first : len(new) - ends]
    while not lines[0]:  # a decorator takes the empty lines above it along
        lines, others, first = lines[1:], others[1:] if others and not others[0] else others, first + 1
    function = _function(source, first + 1)
    nth = sum(1 for line in _standing(source, lines, function) if line < first + 1)
    return {"line": first + 1, "function": function, "nth": nth, "old": "\n".join(lines), "new": "\n".join(others)}


def _function(source: str, line: int) -> str:
    """Return the dotted name of the function or class that holds a line."""
    names, body = [], ast.parse(source).body
    while body:
        held = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and min([node.lineno, *(one.lineno for one in node.decorator_list)]) <= line <= (node.end_lineno or 0)
        ]
        names += [node.name for node in held]
        body = held[0].body if held else []
    return ".".join(names)


def _standing(source: str, lines: Sequence[str], function: str) -> list[int]:
    """Return where these lines, indented in whatever way, stand in a function; where that is not there, in the file."""
    wanted, found = [line.strip() for line in lines], []
    stripped = [line.strip() for line in source.splitlines()]
    for number in range(len(stripped) - len(wanted) + 1):
        if stripped[number : number + len(wanted)] == wanted:
            found.append(number + 1)
    return [line for line in found if _function(source, line) == function]


def locate(mutant: Mutant, package: Path) -> tuple[Path, int] | None:
    """Return the file and line where a mutant's lines stand now, in its function or in one of that name elsewhere."""
    lines, last = mutant["old"].split("\n"), mutant["function"].rpartition(".")[2]
    own = package / mutant["file"]
    for file in [own, *sorted(package.rglob("*.py"))]:
        if not file.is_file():
            continue
        source = file.read_text(encoding="utf-8")
        if file != own and lines[0].strip() not in source:
            continue
        found = _standing(source, lines, mutant["function"])
        if not found and last:
            anywhere = {
                _function(source, line + 1)
                for line, text in enumerate(source.splitlines())
                if text.strip() == lines[0].strip()
            }
            found = [
                line
                for name in sorted(anywhere)
                if name.rpartition(".")[2] == last
                for line in _standing(source, lines, name)
            ]
        if found:
            return file, found[min(mutant["nth"], len(found) - 1)]
    return None


def mutate(mutant: Mutant, file: Path, line: int) -> None:
    """Write a mutant's lines, indented as those that they replace."""
    lines, old, new = (
        file.read_text(encoding="utf-8").splitlines(),
        mutant["old"].split("\n"),
        mutant["new"].split("\n"),
    )
    shift = _indent(lines[line - 1]) - _indent(old[0])
    moved = [" " * max(0, _indent(text) + shift) + text.strip() if text.strip() else "" for text in new]
    lines[line - 1 : line - 1 + len(old)] = moved
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# --- which tests reach a line -----------------------------------------------------------------------------------------


def statement_lines(source: str, line: int) -> set[int]:
    """Return the lines that run when a line's fault does: its statement in a function, or what uses one outside."""
    tree = ast.parse(source)
    held: list[Any] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt | ast.ExceptHandler) and _first(node) <= line <= (node.end_lineno or 0)
    ]
    innermost = max(held, key=lambda node: (_first(node), -(node.end_lineno or 0)))
    body = getattr(innermost, "body", None)
    functions = [node for node in held if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if isinstance(innermost, ast.FunctionDef | ast.AsyncFunctionDef):
        return _inside(innermost)
    if functions:
        return set(range(_first(innermost), (body[0].lineno if body else (innermost.end_lineno or 0) + 1)))
    classes = [node for node in held if isinstance(node, ast.ClassDef)]
    if classes and _inside(classes[-1]):
        return _inside(classes[-1])
    names = {node.id for node in ast.walk(innermost) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.name for node in classes}
    everything = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    using = [node for node in everything if names & {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}]
    return set().union(*map(_inside, using or everything))


def _first(node: Any) -> int:
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])


def _inside(node: Any) -> set[int]:
    """Return the lines of functions' bodies in a node."""
    functions = [one for one in ast.walk(node) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {line for one in functions for line in range(one.body[0].lineno, (one.end_lineno or 0) + 1)}


class Watch:
    """A plugin that keeps how long each test took, whether it failed, and which lines it reached."""

    def __init__(self, files: Sequence[str] = ()) -> None:
        self.seconds: Counter[str] = Counter()
        self.failed: list[str] = []
        self.coverage: Any = None
        if files:
            from coverage import Coverage

            self.coverage = Coverage(data_file=None, include=list(files), config_file=False)
            self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Count the lines that follow to this test."""
        if self.coverage:
            self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add a test's preparation, its call or its end."""
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.failed.append(report.nodeid)

    def reached(self, package: Path) -> dict[str, dict[int, list[str]]]:
        """Return the tests by file and line."""
        self.coverage.stop()
        data = self.coverage.get_data()
        return {
            Path(file).relative_to(package).as_posix(): {
                line: [name for name in names if name] for line, names in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }


class Only:
    """A plugin that keeps these tests, those of quick files first."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.tests = set(seconds)
        self.of_file: Counter[str] = Counter()
        for test, took in seconds.items():
            self.of_file[test.partition("::")[0]] += took

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Choose and sort, after tests/conftest.py has sorted."""
        items[:] = [item for item in items if item.nodeid in self.tests]
        items.sort(key=lambda item: self.of_file[item.nodeid.partition("::")[0]])


# --- processes --------------------------------------------------------------------------------------------------------


def import_what_is_slow() -> None:
    """Import for all forks what does not import this package."""
    for name in SLOW:
        try:
            __import__(name)
        except ImportError as missing:
            print(f"{name}: {missing}", file=sys.stderr)
    from transformers import AutoModel, AutoTokenizer, BertModel, Trainer  # noqa: F401


def child(
    root: Path, package: Path, folder: Path, tests: Sequence[str], work: Callable[[list[str]], dict[str, Any]]
) -> int:
    """Fork a process that runs test files against a package and leaves what `work` returns; return its number."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    code = 70
    try:
        (folder / "tmp").mkdir(parents=True)
        with (folder / "output").open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(root)
        path = os.pathsep.join([str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ |= {
            "PYTHONPATH": path,
            "TMPDIR": str(folder / "tmp"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }
        tempfile.tempdir = None
        sys.path.insert(0, str(package.parent))
        options = [
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--hypothesis-seed=0",
            f"--basetemp={folder / 'tmp' / 'pytest'}",
        ]
        result = work([*options, *sorted({test.partition("::")[0] for test in tests})])
        (folder / "result.json").write_text(json.dumps(result))
        code = 0
    finally:
        os._exit(code)


class Pool:
    """Runs forks, so many at a time, each until its time is up."""

    def __init__(self, jobs: int, until: float = float("inf")) -> None:
        self.jobs = jobs
        self.until = until
        self.running: dict[int, tuple[Any, float, float]] = {}

    def run(self, starts: Iterator[tuple[Any, float, Callable[[], int]]]) -> Iterator[tuple[Any, str, float]]:
        """Yield each fork's key, how it ended and its seconds; `starts` are keys, limits and what forks."""
        left = True
        while left or self.running:
            while left and len(self.running) < self.jobs:
                started = next(starts, None)
                left = started is not None
                if started:
                    key, limit, start = started
                    self.running[start()] = key, time.monotonic(), limit
            yield from list(self._ended())
            time.sleep(0.02)

    def _ended(self) -> Iterator[tuple[Any, str, float]]:
        for pid, (key, since, limit) in list(self.running.items()):
            took, how = time.monotonic() - since, ""
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                how = "ended" if status == 0 else "crashed"
            elif time.monotonic() > self.until:
                how = "no time"
            elif took > limit:
                how = "timeout"
            if how:
                _end_group(pid)
                if not done:
                    os.waitpid(pid, 0)
                del self.running[pid]
                yield key, how, took


def _end_group(pid: int) -> None:
    """End a fork and what it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


# --- a run ------------------------------------------------------------------------------------------------------------


def run(mutants: list[Mutant], root: Path, jobs: int, work: Path, until: float) -> dict[str, Any]:
    """Return what became of each mutant under the tests of a checkout."""
    package = root / "src" / "layerwise"
    found = {mutant["id"]: locate(mutant, package) for mutant in mutants}
    of_room = {room: test_files(root, TESTS[room]) for room in {mutant["room"] for mutant in mutants}}
    files = sorted({str(place[0]) for place in found.values() if place})
    reached, seconds, failing = _reach(root, package, files, jobs, work / "reach", set().union(*of_room.values()))
    tests: dict[int, dict[str, float]] = {}
    for mutant in mutants:
        if place := found[mutant["id"]]:
            own = of_room[mutant["room"]]
            reaching = _reaching(place, package, reached) - failing
            tests[mutant["id"]] = {test: seconds[test] for test in reaching if test.partition("::")[0] in own}
    results: dict[int, dict[str, Any]] = {
        number: {"status": "unreached" if number in tests else "gone"} for number in found
    }

    def starts() -> Iterator[tuple[Any, float, Callable[[], int]]]:
        for mutant in sorted(mutants, key=lambda one: sum(tests.get(one["id"], {}).values())):
            number = mutant["id"]
            if not tests.get(number):
                continue
            if time.monotonic() > until:
                results[number] = {"status": "no time"}
                continue
            folder = work / str(number)
            copied = folder / "src" / "layerwise"
            shutil.copytree(package, copied)
            file, line = found[number] or (package, 0)
            own = copied / file.relative_to(package)
            mutate(mutant, own, line)
            for compiled in own.parent.glob(f"__pycache__/{own.stem}.*.pyc"):
                compiled.unlink()
            judge = partial(_judge, tests[number])
            limit = max(LONGEST, 3 * sum(tests[number].values()) + 30)
            yield number, limit, partial(child, root, copied, folder, sorted(tests[number]), judge)

    for number, how, took in Pool(jobs, until + LONGEST).run(starts()):
        folder = work / str(number)
        result = json.loads((folder / "result.json").read_text()) if how == "ended" else {"status": how}
        results[number] = {**result, "tests": len(tests[number]), "seconds": round(took, 1)}
        if result["status"] == "crashed" or (result["status"] == "killed" and not result["by"]):
            results[number]["output"] = (folder / "output").read_text(errors="replace")[-1500:]
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "tests": len(set(seconds) - failing),
        "failing_unmutated": sorted(failing),
        "mutants": [
            {**mutant, "now": _place_text(found[mutant["id"]], package), **results[mutant["id"]]} for mutant in mutants
        ],
    }


def test_files(root: Path, patterns: Sequence[str]) -> set[str]:
    """Return the test files of patterns, relative to the checkout."""
    paths = [path for pattern in patterns for path in (root / "tests").glob(pattern)]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return {file.relative_to(root).as_posix() for file in files if file.match("test_*.py")}


def _place_text(place: tuple[Path, int] | None, package: Path) -> str | None:
    return place and f"{place[0].relative_to(package).as_posix()}:{place[1]}"


def _reach(
    root: Path, package: Path, files: Sequence[str], jobs: int, work: Path, names: set[str]
) -> tuple[dict[str, dict[int, set[str]]], dict[str, float], set[str]]:
    """Return the tests by file and line, the seconds of each, and those that fail without a mutant."""
    reached: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    seconds: dict[str, float] = {}
    failing: set[str] = set()
    order = sorted(names, key=lambda name: (-(root / name).stat().st_size, name))

    def watched(arguments: list[str]) -> dict[str, Any]:
        watch = Watch(files)
        code = pytest.main(arguments, plugins=[watch])
        return {"code": int(code), "reached": watch.reached(package), "seconds": watch.seconds, "failed": watch.failed}

    def starts() -> Iterator[tuple[Any, float, Callable[[], int]]]:
        for number, name in enumerate(order):
            yield (
                (number, name),
                240,
                lambda number=number, name=name: child(root, package, work / str(number), [name], watched),
            )

    for (number, name), how, took in Pool(jobs).run(starts()):
        if how != "ended":
            print(f"{name}: {how} after {took:.0f} s", file=sys.stderr)
            continue
        result = json.loads((work / str(number) / "result.json").read_text())
        print(
            f"{name}: {len(result['seconds'])} tests in {took:.0f} s, {len(set(result['failed']))} fail",
            file=sys.stderr,
            flush=True,
        )
        seconds |= result["seconds"]
        failing |= set(result["failed"])
        for source, lines in result["reached"].items():
            for line, tests in lines.items():
                reached[source][int(line)] |= set(tests)
        if not result["failed"]:
            shutil.rmtree(work / str(number), ignore_errors=True)
    return reached, seconds, failing


def _reaching(place: tuple[Path, int], package: Path, reached: dict[str, dict[int, set[str]]]) -> set[str]:
    """Return the tests that reach the statement of a mutant."""
    file, line = place
    lines = statement_lines(file.read_text(encoding="utf-8"), line)
    of_file = reached[file.relative_to(package).as_posix()]
    return {test for one in lines for test in of_file.get(one, ())}


def _judge(seconds: dict[str, float], arguments: list[str]) -> dict[str, Any]:
    """Run tests until one fails."""
    watch = Watch()
    code = int(pytest.main(["-x", *arguments], plugins=[watch, Only(seconds)]))
    return {"status": "survived" if code in (0, 5) else "killed", "by": watch.failed[:1]}


# --- results ----------------------------------------------------------------------------------------------------------


def compare(before: dict[str, Any], after: dict[str, Any] | None) -> dict[str, Any]:
    """Return counts by room and by file, the mutants that were killed before only, and every mutant."""
    runs = {"before": before} | ({"after": after} if after else {})
    status = {name: {mutant["id"]: mutant for mutant in record["mutants"]} for name, record in runs.items()}

    def counts(key: str) -> dict[str, Any]:
        return {
            value: {
                name: dict(sorted(Counter(one["status"] for one in of_run.values() if one[key] == value).items()))
                for name, of_run in status.items()
            }
            for value in sorted({mutant[key] for mutant in before["mutants"]})
        }

    rows = []
    for mutant in before["mutants"]:
        row = {key: mutant[key] for key in ("id", "room", "file", "line", "function", "nth", "operator", "old", "new")}
        for name, of_run in status.items():
            one = of_run.get(mutant["id"], {})
            row[name] = one.get("status", "not shown")
            row[f"{name}_by"] = next(iter(one.get("by") or ()), None)
        rows.append(row)
    was_killed = [row for row in rows if row["before"] in KILLED]
    return {
        "tests": {name: record["tests"] for name, record in runs.items()},
        "killed_before": len(was_killed),
        "lost": [row for row in was_killed if row.get("after", "killed") not in (*KILLED, "gone")],
        "gone": [row["id"] for row in was_killed if row.get("after") == "gone"],
        "by_room": counts("room"),
        "by_file": counts("file"),
        "mutants": rows,
    }


def dumped(results: dict[str, Any]) -> str:
    """Return JSON with a line for each mutant, room and file."""
    parts = []
    for key, value in results.items():
        if isinstance(value, list) and value:
            parts.append(f'"{key}": [\n  ' + ",\n  ".join(map(json.dumps, value)) + "\n ]")
        elif isinstance(value, dict) and value:
            lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            parts.append(f'"{key}": {{\n  ' + ",\n  ".join(lines) + "\n }")
        else:
            parts.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def main() -> int:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("sample")
    drawing.add_argument("out", type=Path)
    drawing.add_argument("--src", type=Path, default=Path("src"))
    drawing.add_argument("--seed", type=int, default=0)
    running = commands.add_parser("run")
    running.add_argument("mutants", type=Path)
    running.add_argument("out", type=Path)
    running.add_argument("--root", type=Path, default=Path())
    running.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    running.add_argument("--only", type=int, nargs="+", help="ids of mutants")
    running.add_argument("--killed-in", type=Path, help="a run: only the mutants that it killed")
    running.add_argument("--seconds", type=float, default=86_400, help="start no more mutants after these")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path, nargs="?")
    comparing.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.command == "sample":
        given.out.write_text(json.dumps(sample(given.src, given.seed), indent=1) + "\n")
        return 0
    if given.command == "run":
        return _run(given)
    compared = compare(_read(given.before), _read(given.after) if given.after else None)
    if given.out:
        given.out.write_text(dumped(compared))
    print(dumped({key: value for key, value in compared.items() if key != "mutants"}))
    return int(bool(compared["lost"]))


def _run(given: argparse.Namespace) -> int:
    until = time.monotonic() + given.seconds
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ["PYTEST_XDIST_WORKER"] = "gw0"  # tests/conftest.py: one thread, and a process that forks
    sys.dont_write_bytecode = True
    mutants = _read(given.mutants)
    mutants = mutants["mutants"] if isinstance(mutants, dict) else mutants
    wanted = {mutant["id"] for mutant in mutants} if given.only is None else set(given.only)
    if given.killed_in:
        wanted &= {mutant["id"] for mutant in _read(given.killed_in)["mutants"] if mutant["status"] in KILLED}
    import_what_is_slow()
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as work:
        chosen = [mutant for mutant in mutants if mutant["id"] in wanted]
        result = run(chosen, given.root.resolve(), given.jobs, Path(work).resolve(), until)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(dumped(compare(result, None)["by_room"]))
    return 0


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
