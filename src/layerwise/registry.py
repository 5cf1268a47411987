"""A choice is a registered name, and a miss explains itself."""

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from layerwise.errors import InputError, LayerwiseError

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by their names, e.g. every token pooling."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorate a thing with the name that it will be known by."""

        def keep(thing: T) -> T:
            self._things[name] = thing
            return thing

        return keep

    def __getitem__(self, name: str) -> T:
        if name not in self._things:
            guess = did_you_mean(str(name), self._things)
            raise LayerwiseError(f"Unknown {self.kind} {name!r}.{guess} Known: {', '.join(sorted(self._things))}")
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._things))

    def __contains__(self, name: object) -> bool:
        return name in self._things


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The nearest known word, as a sentence with a space before it; nothing where none is near."""
    close = get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def one_of(value: str, known: tuple[str, ...], what: str) -> None:
    """Refuse what is not among a few known names."""
    if value not in known:
        raise InputError(f"{what} {value!r} is not known; known: {', '.join(known)}")
