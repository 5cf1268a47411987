"""The tests of what changed, for `make check`: chosen by imports, the nearest first, as many as the time allows.

A test file is chosen if it tests the room of a change and reaches the changed module inside it, or if it imports that
module itself or through a door. Its seconds are those of its last run (`support/durations.py`).
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path
from typing import Protocol

SECONDS = 60.0  # of the tests themselves, which two workers share; their start takes another ten
UNKNOWN = 3.0  # of a file that has not run here
BEYOND_ROOMS = {  # what is no module, and who tests it
    "docs": "tests/docs/test_commands.py",
    "reference": "tests/docs/test_site.py",
    "README.md": "tests/test_readme.py",
    "CONTRIBUTING.md": "tests/docs/test_links.py",
    "Makefile": "tests/test_project_files.py",
    "pyproject.toml": "tests/test_project_files.py",
    ".github": "tests/test_project_files.py",
}


class Graph(Protocol):
    """What is asked of grimp's graph."""

    modules: set[str]

    def find_modules_directly_imported_by(self, module: str) -> set[str]: ...


def changed_files(root: Path) -> list[str] | None:
    """Files that differ from the merge base with main, and untracked ones; None where git cannot tell."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        return None if done.returncode else done.stdout

    base = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main") or "HEAD"
    differing = git("diff", "--name-only", "-z", "--relative", base.strip())
    untracked = git("ls-files", "--others", "--exclude-standard", "-z")
    if differing is None or untracked is None:
        return None
    return sorted({name for name in (differing + untracked).split("\0") if name})


@dataclass
class Project:
    """The sources and tests below a folder, and who imports whom."""

    root: Path
    graph: Graph
    _imported: dict[Path, set[str]] = field(default_factory=dict)

    @cached_property
    def test_files(self) -> list[Path]:
        return sorted((self.root / "tests").rglob("test_*.py"))

    def tests_of(self, changed: Iterable[str]) -> list[str]:
        """The test files of these changes, the nearest first."""
        distances: dict[str, int] = {}
        for name in changed:
            for file, distance in self._tests_of(name):
                distances[file] = min(distance, distances.get(file, distance))
        return sorted(distances, key=lambda file: (distances[file], file))

    def _tests_of(self, name: str) -> Iterable[tuple[str, int]]:
        parts = Path(name).parts
        tests = {file.relative_to(self.root).as_posix(): file for file in self.test_files}
        if name in tests:
            yield name, 0
        elif parts[:2] == ("tests", "support"):
            yield from ((test, 1) for test, file in tests.items() if f"support.{Path(name).stem}" in self.imports(file))
        elif parts[0] == "tests" and parts[-1] == "conftest.py":
            yield from ((test, 1) for test, file in tests.items() if file.is_relative_to((self.root / name).parent))
        elif parts[:2] == ("src", "layerwise"):
            yield from self._tests_of_module(parts)
        for beyond, test in BEYOND_ROOMS.items():
            if parts[0] == beyond and test in tests:
                yield test, 1

    def _tests_of_module(self, parts: tuple[str, ...]) -> Iterable[tuple[str, int]]:
        module = ".".join(Path(*parts[1:]).with_suffix("").parts).removesuffix(".__init__")
        room = ".".join(module.split(".")[:2]) if len(parts) > 3 else module
        whole_room = module not in self.graph.modules or module == room  # a page, a file that went; a door
        for file in self.test_files:
            test, imported = file.relative_to(self.root), self.imports(file)
            mine = test.parts[1] == parts[2]
            if module in imported or f"{test.stem}_".startswith(f"test_{Path(parts[-1]).stem}_"):
                yield test.as_posix(), 0 if mine else 2
            elif mine and (whole_room or module in self._reached(imported, room)):
                yield test.as_posix(), 1

    def _reached(self, modules: Iterable[str], room: str) -> set[str]:
        """Modules of a room that these import, directly or by others of the room."""
        reached: set[str] = set()
        waiting = [module for module in modules if module.startswith(f"{room}.")]
        while waiting:
            module = waiting.pop()
            if module not in reached and module in self.graph.modules:
                reached.add(module)
                further = self.graph.find_modules_directly_imported_by(module)
                waiting += [other for other in further if other.startswith(f"{room}.")]
        return reached

    def imports(self, file: Path) -> set[str]:
        """Modules that a test file imports, by the names of doors and by files of tests/support."""
        if file not in self._imported:
            self._imported[file] = found = set()
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    found |= {self._home(node.module, alias.name) for alias in node.names}
            for support in [name for name in found if name.startswith("support.")]:
                helper = self.root / "tests" / f"{support.replace('.', '/')}.py"
                if helper.is_file():
                    found |= self.imports(helper)
        return self._imported[file]

    def _home(self, module: str, name: str) -> str:
        """The module that defines a name which another exports."""
        if f"{module}.{name}" in self.graph.modules:
            return f"{module}.{name}"
        door = self.root / "src" / module.replace(".", "/") / "__init__.py"
        if module.startswith("layerwise") and door.is_file():
            home = exported(door).get(name, module)
            return module if home == module else self._home(home, name)
        return module


@cache
def exported(door: Path) -> dict[str, str]:
    """The names that a package's `__init__` imports, and from where."""
    nodes = ast.walk(ast.parse(door.read_text(encoding="utf-8")))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def within(files: Iterable[str], durations: Mapping[str, float], seconds: float = SECONDS) -> list[str]:
    """As many of the files as fit into the time, in their order; at least one."""
    of_file: dict[str, float] = {}
    for test, took in durations.items():
        name = test.partition("::")[0]
        of_file[name] = of_file.get(name, 0.0) + took
    left = seconds

    def fits(file: str) -> bool:
        nonlocal left
        left -= of_file.get(file, UNKNOWN)
        return left >= 0

    files = list(files)
    return list(takewhile(fits, files)) or files[:1]


def main(root: Path) -> int:
    """Run the tests of what changed; the exit code is pytest's."""
    changed = changed_files(root)
    if changed is None:
        print("check: not a git checkout, so nothing tells what changed: linters only; `make test` runs the tests")
        return 0
    import grimp

    from support.durations import read_durations

    sys.path.insert(0, str(root / "src"))
    graph = grimp.build_graph("layerwise", cache_dir=str(root / ".import_linter_cache"))
    near = Project(root, graph).tests_of(changed)
    chosen = within(near, read_durations(root))
    print(f"check: {len(changed)} changed files, {len(near)} test files of them, {len(chosen)} run here", flush=True)
    if left := near[len(chosen) :]:
        print(f"check: left to `make test`: {' '.join(left)}", flush=True)
    if not chosen:
        return 0
    workers = ["-n", "2"] if len(chosen) > 1 else []
    command = [sys.executable, "-m", "pytest", *workers, "--dist", "loadfile", "--no-loadscope-reorder", *chosen]
    code = subprocess.run(command, cwd=root, check=False).returncode
    return 0 if code == 5 else code  # 5: all tests of the files are slow ones


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main(Path(__file__).parents[2]))
