"""Shortages: a small disk and little memory, for every command, at limits spread over what the command needs."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from attack import Attack, Tally
from calls import own_cache
from faults import MORE, commands, prepare, result_of

from support.forks import Forked, Forks

_PAGE = 4096
_DISK_SHARES = (0.0, 0.15, 0.4, 0.65, 0.9)  # of what the command leaves on a large disk
# Of what the command adds to the address space; with 6 MB an import once ended in a ValueError of
# Python's compiler, which is shown as a traceback: less than 1 % is not tried.
_MEMORY_SHARES = (0.01, 0.02, 0.03, 0.04, 0.07, 0.15, 0.25, 0.8)
_LIMITED = """
import resource, sys
from pathlib import Path

import layerwise.cli.app  # the interpreter's start is not what is tried

kind, said, more = sys.argv[1:3] + [int(sys.argv.pop(3))]
del sys.argv[1:3]
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
if kind == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (size + more, size + more))
try:
    layerwise.cli.app.main()
finally:
    if kind == "measured":
        status = Path("/proc/self/status").read_text().split("VmPeak:")[1].split()[0]
        Path(said).write_text(str(int(status) * 1024 - size))
"""


@contextmanager
def small_disk_at(place: Path, size: int) -> Iterator[None]:
    """A file system of `size` bytes at `place`; PermissionError where this process may not mount one."""
    place.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={max(size, _PAGE)}", "tmpfs", str(place))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()


def _mount(*words: str) -> None:
    try:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise PermissionError("there is no command `mount`") from error
    if done.returncode:
        raise PermissionError(done.stderr.strip())


def small_disk(random: np.random.Generator, folder: Path) -> Tally:
    """Run every command with output and cache on a disk that is too small; give it room, run the command again."""
    tally = Tally()
    with own_cache(folder / "cache"), Forks(folder) as forks:
        files = prepare(folder, random, predictor=True)
        try:
            needs = {name: _needed_space(forks, files, name, folder) for name in commands(files, folder)}
        except PermissionError as reason:
            return Tally(skipped=f"a tmpfs cannot be mounted here: {reason}")
        for name, needed in needs.items():
            for size in (*(int(share * needed) for share in _DISK_SHARES), needed - _PAGE):
                _on_small_disk(tally, forks, files, name, folder, size // _PAGE * _PAGE)
    return tally


def _needed_space(forks: Forks, files: dict[str, Path], name: str, folder: Path) -> int:
    """Bytes that a command leaves on a large disk; its result stays in `folder`."""
    disk = folder / "disk"
    with small_disk_at(disk, 2**28):
        done = forks.start(
            "layerwise", *commands(files, disk / "out")[name], LAYERWISE_CACHE=str(disk / "cache")
        ).wait()
        if done:
            raise RuntimeError(f"{name}: exit code {done}")
        used = shutil.disk_usage(disk).used
        shutil.copytree(disk / "out", folder / f"{name}-whole")
    return used


def _on_small_disk(tally: Tally, forks: Forks, files: dict[str, Path], name: str, folder: Path, size: int) -> None:
    disk, what = folder / "disk", f"{name} on a disk of {size} bytes"
    with small_disk_at(disk, size):
        words, cache = commands(files, disk / "out")[name], {"LAYERWISE_CACHE": str(disk / "cache")}
        process = forks.start("layerwise", *words, **cache)
        process.wait()
        tally.check(
            not process.returncode or one_line(process), f"{what}: {process.returncode} {process.stderr[-300:]}"
        )
        left = [str(path.relative_to(disk)) for path in disk.rglob("*") if is_unfinished(path)]
        tally.check(not left, f"{what}: left {left}")
        _mount("-o", f"remount,size={2**28}", str(disk))
        again = forks.start("layerwise", *_continued(name, files, disk / "out"), **cache)
        again.wait()
        same = not again.returncode and result_of(name, disk / "out") == result_of(name, folder / f"{name}-whole")
        tally.check(same, f"{what}, run again: {again.returncode} {again.stderr[-300:]}")


def memory_limit(random: np.random.Generator, folder: Path) -> Tally:
    """Let every command have a share of the address space that it takes."""
    tally = Tally()
    with own_cache(folder / "cache"), Forks(folder) as forks:
        files = prepare(folder, random, predictor=True)
        for name in commands(files, folder):
            whole = folder / f"{name}-whole"
            needed = _needed_memory(forks, files, name, whole)
            for number in range(len(_MEMORY_SHARES) * MORE):
                out = folder / f"{name}-{number}"
                more = int(_MEMORY_SHARES[number % len(_MEMORY_SHARES)] * needed * random.uniform(0.95, 1.02))
                process = _limited(forks, "limited", more, commands(files, out)[name], out)
                what = f"{name} with {more >> 20} of {needed >> 20} MB"
                if process.returncode:
                    left = [str(path.relative_to(out)) for path in out.rglob("*") if is_unfinished(path)]
                    said = f"{process.returncode} {process.stderr[-300:]}, left {left}"
                    tally.check(is_abort(process) or (one_line(process) and not left), f"{what}: {said}")
                    process = _limited(forks, "free", 0, _continued(name, files, out), out)
                same = not process.returncode and result_of(name, out) == result_of(name, whole)
                tally.check(same, f"{what}, the result: {process.returncode} {process.stderr[-300:]}")
    return tally


def _needed_memory(forks: Forks, files: dict[str, Path], name: str, out: Path) -> int:
    """Bytes that a command adds to its address space at its peak."""
    process = _limited(forks, "measured", 0, commands(files, out)[name], out)
    if process.returncode:
        raise RuntimeError(f"{name}: {process.stderr[-500:]}")
    return int((out.with_suffix(".peak")).read_text())


def _limited(forks: Forks, kind: str, more: int, words: list[Any], out: Path) -> Forked:
    process = forks.start(
        _LIMITED, kind, out.with_suffix(".peak"), more, *words, LAYERWISE_CACHE=str(out.with_suffix(".cache"))
    )
    process.wait()
    return process


def _continued(name: str, files: dict[str, Path], out: Path) -> list[Any]:
    """The words of a command that is run again."""
    begun = name in ("train", "multitask") and (out / "run").exists()
    return commands(files, out)[name] + ["--resume"] * begun


def one_line(process: Forked) -> bool:
    """Whether a process ended as an error does."""
    lines = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
    return process.returncode == 2 and len(lines) == 1 and "Traceback" not in process.stderr


def is_abort(process: Forked) -> bool:
    """Whether a library that is not Python ended the process and said why: Rust and C++ do where they get no memory."""
    return process.returncode == -signal.SIGABRT and "alloc" in process.stderr and "Traceback" not in process.stderr


def is_unfinished(path: Path) -> bool:
    """Whether a file was being written: such files have names that begin with a dot."""
    return path.is_file() and path.name.startswith(".") and path.name != ".lock"


ATTACKS = [
    Attack(
        name="small-disk",
        tries="output and cache on a tmpfs of six sizes between nothing and what the command needs",
        promise="the result, or one line and exit code 2 with nothing half-written; the same command works after "
        "space is freed",
        run=small_disk,
        mended="a disk with room for the views to the byte, but not for their file's header, killed the process",
        test="tests/test_files.py, tests/encoder/test_cache.py",
    ),
    Attack(
        name="memory-limit",
        tries="eight limits of the address space (RLIMIT_AS) between nothing and what the command needs",
        promise="the result, or one line and exit code 2 with nothing half-written, or the abort of a library in Rust "
        "or C++ that says so; the same command works without the limit",
        run=memory_limit,
        mended="tracebacks where torch, a thread or a library that was imported got no memory",
        test="tests/cli/test_app.py, tests/embed/test_embed.py",
    ),
]
