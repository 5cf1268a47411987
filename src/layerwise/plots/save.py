"""Figures as files, the same bytes for the same figure: PNG or SVG by the ending of the name."""

import os
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from layerwise.errors import InputError
from layerwise.files import atomic_file
from layerwise.plots.style import ignore_missing_glyphs
from layerwise.plots.svg import as_text, for_file, for_page, parse

_DPI = 200  # of PNG files
_ONE_AT_A_TIME = Lock()  # what follows is matplotlib's state, put back at once
_STATE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "layerwise",
    "savefig.bbox": None,
    "savefig.transparent": False,
}
_NO_DATE: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
}


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure to a .png or .svg file, whole or not at all."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _NO_DATE:
        raise InputError(f"{path}: figures are written as .png or .svg; give a name that ends so")
    content = _drawn(figure, kind)
    if kind == "svg":
        content = as_text(for_file(parse(content), figure)).encode()
    with atomic_file(path) as building:
        building.write_bytes(content)
    return path


def inline_svg(figure: Figure, id_prefix: str) -> str:
    """An `<svg>` element for a page: as wide as its place, its colours the variables of `theme_css`.

    Points have the class "point" and their text as `<title>` and `data-label`. Ids begin with `id_prefix`, so that
    several figures can be on one page.
    """
    return as_text(for_page(parse(_drawn(figure, "svg")), figure, id_prefix))


def _drawn(figure: Figure, kind: str) -> bytes:
    buffer = BytesIO()
    quiet = ignore_missing_glyphs() if kind == "svg" else nullcontext()
    with _ONE_AT_A_TIME, mpl.rc_context(_STATE), quiet:
        figure.savefig(
            buffer, format=kind, dpi=_DPI if kind == "png" else 72, facecolor=figure.get_facecolor(),
            edgecolor="none", metadata=_NO_DATE[kind],
        )  # fmt: skip
    return buffer.getvalue()
