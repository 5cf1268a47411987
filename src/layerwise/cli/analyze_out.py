"""The files of `layerwise analyze --out`: JSON of everything, CSV of one table, PNG or SVG of one figure."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.errors import InputError
from layerwise.files import check_writable, plain_json, write_json, write_text

if TYPE_CHECKING:
    from layerwise.measures import Measure, MeasureValue

_TABLES, _FIGURES = (".json", ".csv"), (".png", ".svg")
THEMES = ("light", "dark")


@dataclass(frozen=True)
class Result:
    """The values of a measure, by the name of the model or the training."""

    measure: "Measure"
    values: Mapping[str, "MeasureValue"]

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return a table per value; several, and those of trainings, are identified by names."""
        labelled = len(self.values) > 1 or self.measure.of == "trainings"
        tables = {}
        for label, value in self.values.items():
            name, title = self.measure.name, self.measure.title
            if labelled and label:
                name, title = f"{name} {label}", f"{title}, {label}"
            tables[name] = {
                "title": title,
                "reading": self.measure.reading,
                "rows": value.rows(),
                "notes": list(value.notes),
            }
        return tables


def check_out(out: Path, measures: Sequence["Measure"], *, figure: str | None, tables: int) -> None:
    """Raise early for a file that cannot be written or cannot hold the result."""
    kind = out.suffix.lower()
    if kind not in (*_TABLES, *_FIGURES):
        raise InputError(f"{out}: its ending {out.suffix!r} is none of {', '.join((*_TABLES, *_FIGURES))}")
    check_writable(out)
    if kind == ".csv" and tables != 1:
        raise InputError(f"{out}: a CSV file holds one table, not {tables}; name one --measure, or write *.json")
    if kind in _FIGURES:
        if len(measures) != 1:
            raise InputError(
                f"{out}: a figure shows one measure, not {len(measures)}; name one --measure, or see `layerwise report`"
            )
        measures[0].figure(figure)


def write(out: Path, facts: Mapping[str, Any], results: Sequence[Result], *, theme: str, figure: str | None) -> None:
    """Write the kind of file that the ending names."""
    kind = out.suffix.lower()
    if kind in _FIGURES:
        from layerwise.plots import DARK, LIGHT, save_figure

        (result,) = results
        drawing = result.measure.figure(figure).draw(result.values, theme=DARK if theme == "dark" else LIGHT)
        save_figure(drawing, out)
    elif kind == ".json":
        write_json(out, facts, indent=1)
    else:
        (table,) = facts["measures"].values()
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(table["rows"][0]))
        writer.writeheader()
        writer.writerows(plain_json(table["rows"]))
        write_text(out, text.getvalue())
