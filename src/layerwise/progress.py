"""Progress of long work: the library says what it does to a context, in which a command shows it.

>>> with watch("Searching", 3) as advance:
...     advance(1)
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

Advance = Callable[[int], None]
Watch = Callable[[str, int | None], AbstractContextManager[Advance]]
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


def watch(label: str, total: int | None = None) -> AbstractContextManager[Advance]:
    """Start a piece of work of so many steps; the context yields a function that counts steps done."""
    shown = _WATCH.get()
    return nullcontext(_ignore) if shown is None else shown(label, total)


def is_watched() -> bool:
    """Whether progress is shown."""
    return _WATCH.get() is not None


@contextmanager
def showing(shown: Watch | None) -> Iterator[None]:
    """Show the progress of all work in this context by `shown`, which takes a label and a total."""
    token = _WATCH.set(shown)
    try:
        yield
    finally:
        _WATCH.reset(token)


def _ignore(_steps: int) -> None:
    """Show nothing."""
