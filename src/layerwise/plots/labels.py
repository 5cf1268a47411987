"""Labels at the ends of lines if there is room for them, else a legend."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.textpath import text_to_path
from numpy.typing import NDArray

from layerwise.plots.style import FONT, SMALL, TEXT, Drawing, ignore_missing_glyphs, lay_out, shorten_middle

_MIN_DISTANCE = SMALL * 1.3  # points between two labels
_MAX_SHIFT = SMALL * 1.7  # points; a label further from its line is ambiguous
_MAX_LENGTH = 26  # characters
_POINTS = 72
_FONT = FontProperties(family=FONT, size=SMALL)


@dataclass(frozen=True)
class End:
    """A label at the height of a line's end."""

    height: float
    text: str
    colour: str


def spread_apart(heights: Sequence[float], distance: float) -> NDArray[np.float64]:
    """Move heights as little as possible (least squares) to be `distance` apart, in the same order. (n,) -> (n,)

    Heights minus multiples of the distance must not decrease: this is isotonic regression, solved by pooling.
    """
    order = np.argsort(heights, kind="stable")
    steps = distance * np.arange(len(order))
    blocks: list[list[float]] = []
    for value in np.asarray(heights, dtype=np.float64)[order] - steps:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    placed = np.empty(len(order))
    placed[order] = np.concatenate([np.full(len(block), np.mean(block)) for block in blocks]) + steps
    return placed


def label_ends(drawing: Drawing, panel: Axes, ends: Sequence[End], *, force: bool = False) -> bool:
    """Write labels to the right of the lines' ends, in a drawing after `lay_out`.

    Returns whether they were written: they must be close enough to their lines, unless `force` is set.
    """
    if not ends:
        return True
    scale = _POINTS / drawing.dpi
    right = panel.get_xlim()[1]
    heights = [panel.transData.transform((right, end.height))[1] * scale for end in ends]
    placed = spread_apart(heights, _MIN_DISTANCE)
    if not force and np.abs(placed - heights).max() > _MAX_SHIFT:
        return False
    for end, height, line_height in zip(ends, placed, heights, strict=True):
        panel.annotate(
            shorten_middle(end.text, _MAX_LENGTH),
            xy=(right, end.height),
            xytext=(5, float(height - line_height)),
            textcoords="offset points",
            va="center",
            color=end.colour,
            fontsize=SMALL,
            family=FONT,
            annotation_clip=False,
        )
    return True


def legend(drawing: Drawing, handles: Sequence[Artist], names: Sequence[str]) -> Legend:
    """Add a legend above the panels, in several rows if names are long; the title moves above it."""
    names = [shorten_middle(name, 60) for name in names]
    heading = drawing.get_suptitle()
    drawing.suptitle("")
    result = drawing.legend(
        list(handles),
        ["name"] * len(names),  # matplotlib omits names that start with _
        loc="outside upper left",
        ncols=_columns(names, drawing.get_figwidth()),
        frameon=False,
        prop={"family": FONT, "size": SMALL},
        labelcolor=drawing.theme.ink,
        title=heading or None,
        title_fontproperties={"family": FONT, "size": TEXT + 1},
        alignment="left",
        handlelength=1.6,
        handletextpad=0.5,
        columnspacing=1.4,
        borderpad=0.5,
        borderaxespad=0.1,
    )
    for text, name in zip(result.get_texts(), names, strict=True):
        text.set_text(name)
    for text in (result.get_title(), *result.get_texts()):
        text.set_parse_math(False)
        text.set_color(drawing.theme.ink)
    return result


def name_lines(drawing: Drawing, panel: Axes, ends: Sequence[End], handles: Sequence[Artist]) -> None:
    """Label lines at their ends if there is room, else by a legend."""
    lay_out(drawing)
    if not label_ends(drawing, panel, ends):
        legend(drawing, handles, [end.text for end in ends])


def _columns(names: Sequence[str], inches: float) -> int:
    """The number of names that fit in one row."""
    with ignore_missing_glyphs():
        widths = [text_to_path.get_text_width_height_descent(name, _FONT, False)[0] for name in names]
    padding = 3.5 * SMALL  # the line before a name, and the space after it
    available = inches * _POINTS - 2 * SMALL
    if sum(widths) + padding * len(names) <= available:
        return len(names)
    return max(1, min(len(names), int(available // (max(widths) + padding))))
