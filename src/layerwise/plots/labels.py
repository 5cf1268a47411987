"""Names at the ends of lines, where there is room for them; a legend where there is not."""

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

_APART = SMALL * 1.3  # points between two names
_FAR = SMALL * 1.7  # a name further than this from its line may be taken for another's
_LONGEST = 26  # letters
_POINTS = 72
_LETTERS = FontProperties(family=FONT, size=SMALL)


@dataclass(frozen=True)
class End:
    """A name at the height of a line's end."""

    height: float
    text: str
    colour: str


def spread_apart(heights: Sequence[float], apart: float) -> NDArray[np.float64]:
    """Heights moved as little as needed (least squares) to be `apart` from each other, in the same order. (n,) -> (n,)

    Heights minus their share of the gaps must not fall: that is isotonic regression, by pooling neighbours.
    """
    order = np.argsort(heights, kind="stable")
    steps = apart * np.arange(len(order))
    blocks: list[list[float]] = []
    for value in np.asarray(heights, dtype=np.float64)[order] - steps:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    placed = np.empty(len(order))
    placed[order] = np.concatenate([np.full(len(block), np.mean(block)) for block in blocks]) + steps
    return placed


def label_ends(drawing: Drawing, panel: Axes, ends: Sequence[End], *, force: bool = False) -> bool:
    """Write the names to the right of the lines' ends, in a drawing that was measured, so that panels have a height.

    Whether they fit near enough to their lines, or are forced.
    """
    if not ends:
        return True
    scale = _POINTS / drawing.dpi
    right = panel.get_xlim()[1]
    heights = [panel.transData.transform((right, end.height))[1] * scale for end in ends]
    placed = spread_apart(heights, _APART)
    if not force and np.abs(placed - heights).max() > _FAR:
        return False
    for end, height, wanted in zip(ends, placed, heights, strict=True):
        panel.annotate(
            shorten_middle(end.text, _LONGEST),
            xy=(right, end.height),
            xytext=(5, float(height - wanted)),
            textcoords="offset points",
            va="center",
            color=end.colour,
            fontsize=SMALL,
            family=FONT,
            annotation_clip=False,
        )
    return True


def legend(drawing: Drawing, handles: Sequence[Artist], names: Sequence[str]) -> Legend:
    """Names above the panels, in a row or, if they are long, in several; the title moves above them."""
    names = [shorten_middle(name, 60) for name in names]
    heading = drawing.get_suptitle()
    drawing.suptitle("")
    made = drawing.legend(
        list(handles),
        ["name"] * len(names),  # a name that begins with _ would be left out
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
    for text, name in zip(made.get_texts(), names, strict=True):
        text.set_text(name)
    for text in (made.get_title(), *made.get_texts()):
        text.set_parse_math(False)
        text.set_color(drawing.theme.ink)
    return made


def name_lines(drawing: Drawing, panel: Axes, ends: Sequence[End], handles: Sequence[Artist]) -> None:
    """By their ends if that is clear, else by a legend."""
    lay_out(drawing)
    if not label_ends(drawing, panel, ends):
        legend(drawing, handles, [end.text for end in ends])


def _columns(names: Sequence[str], inches: float) -> int:
    """How many names fit in one row."""
    with ignore_missing_glyphs():
        widths = [text_to_path.get_text_width_height_descent(name, _LETTERS, False)[0] for name in names]
    around = 3.5 * SMALL  # the line before a name, and what keeps it from the next
    room = inches * _POINTS - 2 * SMALL
    if sum(widths) + around * len(names) <= room:
        return len(names)
    return max(1, min(len(names), int(room // (max(widths) + around))))
