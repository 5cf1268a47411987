"""A table of figures, which the page's script makes sortable; readable without it."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias

from layerwise.errors import InputError
from layerwise.report.markup import escaped

Cell: TypeAlias = str | float | None


@dataclass(frozen=True)
class Column:
    """What stands in a column: texts, or numbers with so many digits after the point."""

    name: str
    kind: Literal["text", "number"] = "number"
    digits: int = 2
    help: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell names its row. None and NaN are shown as a dash and sorted last."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InputError(
                    f"Row {number} has {len(row)} cells for {len(self.columns)} columns; give one for each"
                )
            for column, cell in zip(self.columns, row, strict=True):
                if column.kind == "number" and isinstance(cell, str):
                    raise InputError(f"Row {number}: {cell!r} in the column {column.name!r} is not a number")


def table_html(table: Table, *, label: str) -> str:
    """The table in a box of its own, in which it scrolls sideways, and what its columns mean."""
    head = "".join(_heading(column) for column in table.columns)
    body = "".join(f"<tr>{_row(table.columns, row)}</tr>\n" for row in table.rows)
    box = f'<div class="scroll" role="region" tabindex="0" aria-label="{escaped(label)}">'
    rows = f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    return f'{box}<table class="sortable">{rows}</table></div>{_meanings(table)}'


def _heading(column: Column) -> str:
    told = f' data-help="{escaped(column.help)}"' if column.help else ""
    return f'<th scope="col" class="{column.kind}"{told}>{escaped(column.name)}</th>'


def _row(columns: tuple[Column, ...], row: tuple[Cell, ...]) -> str:
    first, *others = (_cell(column, cell) for column, cell in zip(columns, row, strict=True))
    return f'<th scope="row" {first}</th>' + "".join(f"<td {other}</td>" for other in others)


def _cell(column: Column, cell: Cell) -> str:
    """A cell after its element's name. Numbers are sorted by their full value, not by the digits shown."""
    if cell is None or (not isinstance(cell, str) and not isfinite(cell)):
        return f'class="{column.kind}" data-value="">–'
    if isinstance(cell, str) or column.kind == "text":
        return f'class="text" dir="auto">{escaped(cell)}'
    shown = f"{float(cell):z,.{column.digits}f}".replace("-", "\N{MINUS SIGN}")
    return f'class="number" data-value="{float(cell)!r}">{shown}'


def _meanings(table: Table) -> str:
    told = "".join(
        f"<div><dt>{escaped(column.name)}</dt><dd>{escaped(column.help)}</dd></div>"
        for column in table.columns
        if column.help
    )
    return f'<details><summary>What the columns mean</summary><dl class="pairs">{told}</dl></details>' if told else ""
