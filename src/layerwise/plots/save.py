"""Save figures reproducibly, as PNG or SVG by the file extension."""

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
_LOCK = Lock()  # of matplotlib's global state, which is set temporarily
_RC_PARAMS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "layerwise",
    "savefig.bbox": None,
    "savefig.transparent": False,
}
_METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
}


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure to a .png or .svg file, atomically."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InputError(f"{path}: figures are written as .png or .svg; give a name that ends so")
    content = _render(figure, kind)
    if kind == "svg":
        content = as_text(for_file(parse(content), figure)).encode()
    with atomic_file(path) as building:
        building.write_bytes(content)
    return path


def inline_svg(figure: Figure, id_prefix: str) -> str:
    """An `<svg>` element for a page: of full width, with the variables of `theme_css` as colours.

    Points have the class "point" and their text as `<title>` and `data-label`. Ids start with `id_prefix`, so that a
    page can contain several figures.
    """
    return as_text(for_page(parse(_render(figure, "svg")), figure, id_prefix))


def _render(figure: Figure, kind: str) -> bytes:
    buffer = BytesIO()
    quiet = ignore_missing_glyphs() if kind == "svg" else nullcontext()
    with _LOCK, mpl.rc_context(_RC_PARAMS), quiet:
        figure.savefig(
            buffer, format=kind, dpi=_DPI if kind == "png" else 72, facecolor=figure.get_facecolor(),
            edgecolor="none", metadata=_METADATA[kind],
        )  # fmt: skip
    return buffer.getvalue()
