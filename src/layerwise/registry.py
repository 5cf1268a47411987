"""Registries: choices by name, and errors that list the known names."""

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from layerwise.errors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """A registry of objects of one kind by name, e.g. all token poolings."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Register an object under a name, as a decorator."""

        def decorator(entry: T) -> T:
            self._entries[name] = entry
            return entry

        return decorator

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise unknown(self.kind, name, sorted(self._entries))
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the closest known name as a sentence with a leading space, or an empty string."""
    close = get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown(kind: str, name: object, known: Iterable[str], *, more: str = "") -> InputError:
    """Build the error for an unknown name; `more` is appended to the known names.

    >>> unknown("suite", "stss", ["sts", "transfer"])
    InputError("Unknown suite 'stss'. Did you mean 'sts'? Known: sts, transfer")
    """
    names = list(known)
    return InputError(f"Unknown {kind} {name!r}.{did_you_mean(str(name), names)} Known: {', '.join(names)}{more}")


def check_known(name: str, known: Iterable[str], kind: str) -> None:
    """Raise for an unknown name."""
    names = list(known)
    if name not in names:
        raise unknown(kind, name, names)
