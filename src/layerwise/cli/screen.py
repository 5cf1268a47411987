"""Terminal output of all commands: tables, sizes, JSON, errors, progress. rich is imported only when needed."""

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from layerwise.errors import printable
from layerwise.files import plain_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def say_error(text: str) -> None:
    """Print one line on standard error."""
    print("error: " + printable(" ".join(text.split())), file=sys.stderr)  # noqa: T201


class _Printable(logging.Formatter):
    """Messages may hold texts and names of files: control characters are written out."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the host's name
        return printable(super().formatMessage(record))


def show_log() -> None:
    """Log warnings of all packages and messages of this one on standard error."""
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_Printable("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    logging.getLogger("layerwise").setLevel(logging.INFO)


def print_json(value: Any) -> None:
    """A result for programs; what is not a number is null, for JSON knows no NaN."""
    text = json.dumps(plain_json(value), indent=2, ensure_ascii=False, allow_nan=False)
    print("\n".join(map(_escaped, text.split("\n"))))  # noqa: T201


def _escaped(line: str) -> str:
    """Format a line of JSON, escaping characters that terminals interpret."""
    return "".join(char if printable(char) == char else f"\\u{ord(char):04x}" for char in line)


def points(score: float | None) -> str:
    """Format a correlation or rate times 100; empty for None."""
    return "" if score is None else f"{100 * score:.1f}"


def spent(seconds: "Mapping[str, float]") -> str:
    """Format durations, such as "Views 3.1 s, search 0.07 s."."""
    parts = ", ".join(f"{step} {took:.1f} s" if took >= 1 else f"{step} {took:.2f} s" for step, took in seconds.items())
    return f"{parts[:1].upper()}{parts[1:]}."


def print_line(text: str = "", *, wrap: bool = True) -> None:
    """Print a line for people, or one to copy (`wrap=False`), without markup: a folder may be called run[old]."""
    from rich.console import Console

    Console().print(_printable_lines(text), markup=False, highlight=False, soft_wrap=not wrap)


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", left: Sequence[int] = ()
) -> None:
    """Print a table; numeric columns after the first are right-aligned, except those in `left`."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for place, column in enumerate(columns):
        numeric = all(row[place][:1].isdigit() or row[place][:1] in "-+" for row in rows if row[place])
        justify: Literal["left", "right"] = "right" if place and numeric and place not in left else "left"
        table.add_column(Text(printable(column)), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_printable_lines(cell)) for cell in row))
    console = Console()
    if title:
        console.print(Text(printable(title)))  # over the table: in it, it would be broken to the table's width
    console.print(table)


def screen_width() -> int:
    """Return the number of characters per line."""
    from rich.console import Console

    return Console().width


def human_bytes(count: float) -> str:
    """Format a size, such as "3.2 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


@contextmanager
def counting(label: str, total: int | None = None, *, unit: str = "rows") -> Iterator["Callable[[int], None]"]:
    """Yield a callback that advances a progress bar on standard error by a number of rows; no bar in a log file."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total, unit=unit)
        yield lambda rows: progress.advance(task, rows)


def decimals(value: float, digits: int) -> str:
    """Format with this many decimals; nonzero numbers that would show as 0 are in scientific notation.

    >>> decimals(0.25, 3), decimals(0.0, 3), decimals(5e-6, 3)
    ('0.250', '0.000', '5e-06')
    """
    text = f"{value:.{digits}f}"
    return f"{value:.1g}" if value and not float(text) else text
