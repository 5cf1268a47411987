"""Files that are whole or not there, and the JSON in them.

What is written is built beside its place, flushed to the disk and renamed. A failure removes what was built, leaves
what was there before, and is one line that names the file and the remedy. What is written to an object store is built
in the temporary folder and sent as a whole.
"""

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.errors import InputError, LayerwiseError
from layerwise.stores import StorePath, place_of

if TYPE_CHECKING:
    import numpy as np

_REMEDY = "free some space or give another path"


@contextmanager
def atomic_file(
    path: str | os.PathLike[str] | StorePath, *, remedy: str = _REMEDY, error: type[LayerwiseError] = InputError
) -> Iterator[Path]:
    """Yield a temporary path with the same suffix, which is renamed to `path` if the block succeeds.

    Missing parent folders are created. An `OSError` inside the block becomes `error`, in one line with the `remedy`.
    """
    target = place_of(path).expanduser()
    if isinstance(target, StorePath):
        with _sent_file(target, remedy, error) as building:
            yield building
        return
    building = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield building
        with building.open("rb") as file:
            os.fsync(file.fileno())
        building.replace(target)
    except OSError as reason:
        raise error(f"{target}: cannot be written: {reason_of(reason)}; {remedy}") from reason
    finally:
        if os.path.lexists(building):  # `unlink` raises where the parent is not a folder
            building.unlink(missing_ok=True)  # the folder may vanish in between


@contextmanager
def _sent_file(target: StorePath, remedy: str, error: type[LayerwiseError]) -> Iterator[Path]:
    """`atomic_file` of an object store."""
    try:
        with tempfile.TemporaryDirectory(prefix="layerwise-") as folder:
            building = Path(folder) / target.name
            yield building
            target.send(building)
    except OSError as reason:  # of this machine's disk; those of the store are no OSError
        raise error(f"{target}: cannot be written: {reason_of(reason)}; {remedy}") from reason


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str], *, remedy: str = _REMEDY, error: type[LayerwiseError] = InputError
) -> Iterator[Path]:
    """Like `atomic_file`, for a folder created in the context; an existing one is replaced as a whole."""
    target = Path(path).expanduser()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            new, old = Path(scratch) / "new", Path(scratch) / "old"
            with _named_as(new, target):
                yield new
            _share(new)
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
    except OSError as reason:
        raise error(f"{target}: cannot be written: {reason_of(reason)}; {remedy}") from reason


@contextmanager
def _named_as(new: Path, target: Path) -> Iterator[None]:
    """Let errors about files in an unfinished folder name their final place."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(os.fspath(new), os.fspath(target))) from error


def _share(folder: Path) -> None:
    """Give files the read permissions of their folder, as safetensors makes weights readable by the owner only."""
    mode = folder.stat().st_mode & 0o666
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod(mode)


def reason_of(error: OSError) -> str:
    """Return the operating system's words for an error; pyarrow and FAISS put their own around them.

    >>> reason_of(OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"))
    'No space left on device'
    """
    return os.strerror(error.errno) if error.errno else str(error)


def check_writable(path: str | os.PathLike[str] | StorePath) -> None:
    """Raise early for a file that `atomic_file` could not write.

    In a store, an empty object beside it is written and removed.
    """
    target = place_of(path).expanduser()
    if target.is_dir():
        raise InputError(f"{target}: is a folder; give the name of a file")
    if isinstance(target, StorePath):
        probe = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)
        return
    nearest = next(folder for folder in target.absolute().parents if folder.exists())
    if not nearest.is_dir():
        raise InputError(f"{target}: {nearest} is a file, not a folder; give another path")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"{target}: cannot be written: no permission in {nearest}; give another path")


def new_mapped_array(path: Path, *, dtype: Any, shape: tuple[int, ...]) -> "np.memmap[Any, Any]":
    """Create a memory-mapped .npy file. Its space is reserved, so that a full disk raises `OSError` here.

    A full disk that is met while a memory map is written kills the process.
    """
    import numpy as np

    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that cannot reserve
                    raise
    return array


def write_text(path: str | os.PathLike[str] | StorePath, text: str) -> None:
    """Write a text file as UTF-8; halves of surrogate pairs, which UTF-8 does not have, become question marks."""
    with atomic_file(path) as building:
        building.write_bytes(text.encode("utf-8", "replace"))


def write_json(path: str | os.PathLike[str] | StorePath, value: Any, *, indent: int | None = None) -> None:
    """Write a JSON file; NaN and infinity become null."""
    text = json.dumps(plain_json(value), indent=indent, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n" * (indent is not None))


def read_json(path: str | os.PathLike[str] | StorePath, *, remedy: str = "check the path") -> dict[str, Any]:
    """Read a JSON object from a file; `remedy` ends the error message."""
    path = place_of(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except InputError:  # of a store, with its reason
        raise
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason_of(reason)}; {remedy}") from reason
    except (ValueError, RecursionError) as reason:
        raise InputError(f"{path}: is not JSON: {reason}; {remedy}") from reason
    if not isinstance(value, dict):
        raise InputError(f"{path}: is not a JSON object; {remedy}")
    return value


def plain_json(value: Any) -> Any:
    """Convert a value to plain JSON: NaN and infinity become null, NumPy values become plain ones.

    >>> plain_json({"score": float("nan"), "layers": (0, 12)})
    {'score': None, 'layers': [0, 12]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):  # an array or a number of NumPy's, which need not be imported for it
        return plain_json(value.tolist())
    if isinstance(value, Sequence):
        return [plain_json(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
