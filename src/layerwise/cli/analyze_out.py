"""The files of `layerwise analyze --out`: JSON of everything, CSV of one table, PNG or SVG of one figure."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.errors import InputError
from layerwise.files import plain_json

if TYPE_CHECKING:
    from layerwise.measures import Measured
    from layerwise.plots import Drawing, Theme

_TABLES, _FIGURES = (".json", ".csv"), (".png", ".svg")
THEMES = ("light", "dark")
VIEWS = ("halves", "sizes", "without", "pairs")


@dataclass(frozen=True)
class Finding:
    """One measure of one model, of two, or of trainings: name -> what was found; `labelled` ones are always named."""

    title: str
    reading: str
    measured: Mapping[str, "Measured"]
    labelled: bool = False

    def tables(self, name: str) -> dict[str, dict[str, Any]]:
        """A table for each; where there are several, their names say which is which."""
        tell = self.labelled or len(self.measured) > 1
        return {
            f"{name} {label}" if tell else name: {
                "title": f"{self.title}, {label}" if tell else self.title,
                "reading": self.reading,
                "rows": found.rows(),
                "notes": list(found.notes),
            }
            for label, found in self.measured.items()
        }


def check_out(out: Path | None, *, figures: int, tables: int) -> None:
    """Refuse a name before anything is measured: by its ending, and by how much a file of that kind holds."""
    if out is None:
        return
    kind = out.suffix.lower()
    if kind not in (*_TABLES, *_FIGURES):
        raise InputError(f"{out}: its ending {out.suffix!r} is none of {', '.join((*_TABLES, *_FIGURES))}")
    if out.is_dir():
        raise InputError(f"{out}: is a folder; name a file for --out")
    if kind == ".csv" and tables != 1:
        raise InputError(f"{out}: a CSV file holds one table, not {tables}; name one --measure, or write *.json")
    if kind in _FIGURES and figures != 1:
        raise InputError(
            f"{out}: a figure shows one measure, not {figures}; name one --measure, or see `layerwise report`"
        )
    if kind in _FIGURES and not out.parent.is_dir():
        raise InputError(f"{out}: the folder {out.parent} is not there; make it first")


def check_look(theme: str, view: str) -> None:
    """Refuse names of figures' looks that there are not."""
    for what, given, known in (("theme", theme, THEMES), ("figure", view, VIEWS)):
        if given not in known:
            raise InputError(f"Unknown {what} {given!r}. Known: {', '.join(known)}")


def write(out: Path, facts: Mapping[str, Any], findings: Sequence[Finding], *, theme: str, view: str) -> None:
    """The kind is the name's ending."""
    from layerwise.files import write_text

    kind = out.suffix.lower()
    if kind in _FIGURES:
        _draw(out, findings, theme, view)
    elif kind == ".json":
        write_text(out, json.dumps(plain_json(facts), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        (table,) = facts["measures"].values()
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(table["rows"][0]))
        writer.writeheader()
        writer.writerows(plain_json(table["rows"]))
        write_text(out, text.getvalue())


def _draw(out: Path, findings: Sequence[Finding], theme: str, view: str) -> None:
    from layerwise import plots

    (finding,) = findings
    plots.save_figure(_drawn(finding.measured, plots.DARK if theme == "dark" else plots.LIGHT, view), out)


def _drawn(measured: Mapping[str, "Measured"], theme: "Theme", view: str) -> "Drawing":
    from layerwise.measures import ChosenLayers
    from layerwise.report import drawings

    first = next(iter(measured.values()))
    if isinstance(first, ChosenLayers) and view != "halves" and len(measured) == 1:
        draw = {"sizes": drawings.by_size, "without": drawings.without_layer, "pairs": drawings.by_pairs}[view]
        return draw(first, theme)
    return drawings.drawn(measured, theme=theme)
