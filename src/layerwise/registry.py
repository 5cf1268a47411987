"""A choice is a registered name, and a miss explains itself."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from layerwise.errors import LayerwiseError

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
            close = get_close_matches(str(name), self._things, n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            raise LayerwiseError(f"Unknown {self.kind} {name!r}.{guess} Known: {', '.join(sorted(self._things))}")
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._things))

    def __contains__(self, name: object) -> bool:
        return name in self._things
