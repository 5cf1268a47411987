"""Places: paths of this machine, and URLs of object stores with the methods of `pathlib.Path` that our files need.

A store has no folders, no renaming and no half-written objects: an object is there once it has been sent as a whole.
Any store that fsspec knows can be named; its package is an extra. Credentials and endpoints come from where the store's
client looks for them (environment, configuration files, roles), never from us.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.stores.failures import failures, without_secrets

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_EXTRAS = {"s3": ("s3", "s3fs"), "s3a": ("s3", "s3fs"), "gs": ("gcs", "gcsfs"), "gcs": ("gcs", "gcsfs")}
_BLOCK_BYTES = 8 << 20  # fetched at a time: what reading an object holds in memory
_BUFFER_BYTES = 1 << 18


@dataclass(frozen=True)
class StorePath:
    """An object in a store, or a prefix of objects. Its str is the URL without secrets.

    >>> str(StorePath("memory://corpus/") / "part-000000.parquet")
    'memory://corpus/part-000000.parquet'
    """

    url: str
    size: int | None = field(default=None, compare=False)  # of an object, where a listing has said it

    def __post_init__(self) -> None:
        scheme, _, rest = self.url.partition("://")
        object.__setattr__(self, "url", self.url.rstrip("/") if rest.strip("/") else self.url)
        if not rest.strip("/"):
            raise InputError(f"{without_secrets(self.url)}: names no bucket; give one such as {scheme}://bucket/name")
        if scheme.lower() in _EXTRAS:
            extra, package = _EXTRAS[scheme.lower()]
            require(extra, f"{without_secrets(self.url)}: a URL of {scheme}://", package)

    def __str__(self) -> str:
        return without_secrets(self.url)

    def __reduce__(self) -> tuple[Any, ...]:
        return StorePath, (self.url,)

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(f"{self.url}/{name}")

    @property
    def scheme(self) -> str:
        """The part before ://."""
        return self.url.partition("://")[0].lower()

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name."""
        return Path(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return Path(self.name).stem

    @property
    def parent(self) -> "StorePath":
        """The parent; a bucket is its own parent."""
        above = self.url.rpartition("/")[0]
        return self if above.endswith("/") else StorePath(above)

    def with_name(self, name: str) -> "StorePath":
        """Return the path with another name."""
        return StorePath(f"{self.url.rpartition('/')[0]}/{name}")

    def expanduser(self) -> "StorePath":
        """Return the path itself, as URLs have no home folder."""
        return self

    def exists(self) -> bool:
        """Whether there is an object, or any below this name."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        if self.size is not None:
            return True
        with failures(self.url, "cannot be looked at"):
            return bool(self._files.isfile(self._key))

    def is_dir(self) -> bool:
        """Whether there are objects below this name."""
        return next(self.iterdir(), None) is not None

    def iterdir(self) -> Iterator["StorePath"]:
        """Iterate over the direct children, in no order."""
        with failures(self.url, "cannot be listed"):
            self._files.invalidate_cache()
            try:
                entries = self._files.ls(self._key, detail=True)
            except FileNotFoundError:
                return
        for entry in entries:
            path = str(entry["name"]).rstrip("/")
            if path != self._key.rstrip("/"):
                is_object = entry["type"] == "file"
                yield StorePath(f"{self.url}/{path.rpartition('/')[2]}", entry["size"] if is_object else None)

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        """Iterate over the direct children whose name matches a pattern."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """The object as a stream of bytes, of which a few megabytes are in memory at a time."""
        if mode != "rb":
            raise ValueError(f"an object is read as bytes or written as a whole, not opened with {mode!r}")
        with failures(self.url, "cannot be read"):
            stream = self._files.open(self._key, "rb", block_size=_BLOCK_BYTES)
        return io.BufferedReader(_Stream(self.url, stream), _BUFFER_BYTES)

    def read_text(self, encoding: str = "utf-8") -> str:
        """The whole object as a text."""
        with failures(self.url, "cannot be read"):
            return bytes(self._files.cat_file(self._key)).decode(encoding)

    def read_below(self, names: Iterable[str]) -> dict[str, bytes]:
        """Small objects below this name, many at a time; those that are not there are left out."""
        keys = {f"{self._key}/{name}": name for name in names}
        if not keys:
            return {}
        with failures(self.url, "cannot be read"):
            contents: Mapping[str, Any] = self._files.cat(list(keys), on_error="return")
            for content in contents.values():
                if isinstance(content, BaseException) and not isinstance(content, FileNotFoundError):
                    raise content
        return {keys[key]: data for key, data in contents.items() if isinstance(data, bytes)}

    def write_bytes(self, data: bytes) -> None:
        """Upload an object, replacing an existing one."""
        with failures(self.url, "cannot be written"):
            self._files.pipe_file(self._key, data)

    def create(self, data: bytes) -> bool:
        """Upload an object unless it exists, atomically; return whether it was uploaded."""
        with failures(self.url, "cannot be written"):
            try:
                self._files.pipe_file(self._key, data, mode="create")
            except FileExistsError:
                return False
        return True

    def send(self, file: Path) -> None:
        """Upload a local file as the object, atomically."""
        with failures(self.url, "cannot be written"):
            self._files.put_file(str(file), self._key)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        with failures(self.url, "cannot be removed"):
            try:
                self._files.rm_file(self._key)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: ARG002 - as pathlib's
        """Raise if an object of this name exists; otherwise do nothing, as a store has no folders."""
        if self.is_file():
            raise FileExistsError(str(self))

    def rmdir(self) -> None:
        """There is nothing to remove."""

    @cached_property
    def _files(self) -> Any:
        return self._opened[0]

    @cached_property
    def _key(self) -> str:
        return str(self._opened[1])

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        with failures(self.url, "cannot be opened"):
            try:
                # a listing of before would hide what other processes have written since
                files, key = url_to_fs(self.url, use_listings_cache=False)
            except (ImportError, ValueError) as error:
                raise InputError(
                    f"{self}: cannot be opened: {error}; give a path, or a URL of s3://, gs:// or hf://"
                ) from error
        return files, str(key)


Place = Path | StorePath


class _Stream(io.RawIOBase):
    """Adapts an fsspec file to Python's buffered IO; a lost connection raises `InputError`."""

    def __init__(self, url: str, stream: Any) -> None:
        self._url, self._stream = url, stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with failures(self._url, "cannot be read on"):
            data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def is_url(text: object) -> bool:
    """Whether a text names a place in a store; a URL of file:// is a path of this machine.

    >>> is_url("s3://bucket/rows.csv"), is_url("rows.csv"), is_url("file:///tmp/rows.csv")
    (True, False, False)
    """
    return isinstance(text, str) and bool(_URL.match(text)) and not text.lower().startswith("file://")


def place_of(given: str | os.PathLike[str] | StorePath) -> Place:
    """Convert a path or URL to a local path or a path in an object store."""
    if isinstance(given, StorePath):
        return given
    text = os.fspath(given)
    if is_url(text):
        return StorePath(text)
    return Path(text[len("file://") :] if text.lower().startswith("file://") else text)


def refuse_url(path: object, what: str) -> None:
    """Raise for a URL where only a local path is supported."""
    if is_url(path):
        raise InputError(
            f"{without_secrets(str(path))}: {what} is written to this machine's disk; give a path, and copy it after"
        )


def readable(place: str | Place) -> Any:
    """Return a source for pyarrow: the path, or a stream of the object."""
    place = place_of(place)
    return place.open() if isinstance(place, StorePath) else place


def remove(paths: Iterable[Place]) -> None:
    """Remove files or objects, the latter in bulk."""
    objects = []
    for path in paths:
        if isinstance(path, StorePath):
            objects.append(path)
        else:
            path.unlink()
    if objects:
        with failures(objects[0].parent.url, "objects below cannot be removed"):
            objects[0]._files.rm([path._key for path in objects])
