"""A real disk with little space: a tmpfs, which fills up as a disk does and can be given more."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A file system of so many bytes at a folder."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))

    def grow(self, size: int) -> None:
        """Free some space."""
        _mount("-o", f"remount,size={size}", str(self.folder))


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """A disk that is gone afterwards; the test is skipped where this process may not mount one."""
    try:
        disk = SmallDisk(folder, size)
    except (PermissionError, FileNotFoundError) as reason:
        pytest.skip(f"a tmpfs cannot be mounted here: {reason}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(done.stderr.strip())
