"""The style of all figures: two themes, sizes, axes, labels.

Nothing here touches matplotlib's global state: every artist gets its own style.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine, LayoutEngine
from matplotlib.text import Text

from layerwise.errors import InputError

FONT = "DejaVu Sans"  # comes with matplotlib, so figures are the same everywhere
TEXT, SMALL = 10.0, 9.5  # points
LINE, THIN = 1.8, 0.8
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")  # in addition to colour, for colour-blind readers
HEAT_LEVELS = 24
BACKGROUND = "paper"  # the id of the background, which pages omit
SINGLE = (5.8, 3.5)  # inches
_MARGIN = 0.08
_LETTERS_PER_INCH = 12  # of a title


@dataclass(frozen=True)
class Theme:
    """The colours of a theme: eight series, distinct with any colour vision, and a scale from low to high."""

    name: str
    paper: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]
    scale: tuple[str, str, str]  # low, middle, high: increasing contrast to the background
    heat: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "heat", _steps(self.scale, HEAT_LEVELS))

    @property
    def heat_map(self) -> ListedColormap:
        """The scale as a matplotlib colour map."""
        return ListedColormap(list(self.heat), name=f"layerwise-{self.name}")

    def colour(self, number: int) -> str:
        """The colour of a series, numbered from 0."""
        return self.series[number]


def _steps(colours: tuple[str, str, str], count: int) -> tuple[str, ...]:
    places = np.linspace(0, 2, count)
    channels = np.array([to_rgb(colour) for colour in colours]).T
    return tuple(to_hex(tuple(np.interp(place, (0, 1, 2), channel) for channel in channels)) for place in places)


LIGHT = Theme(
    "light",
    paper="#ffffff",
    ink="#1c2430",
    muted="#5b6573",
    grid="#e2e6eb",
    series=("#0072b2", "#d55e00", "#08a674", "#79275f", "#3295f5", "#7a5100", "#00237e", "#440300"),
    scale=("#edf3f9", "#4a94c9", "#0b2545"),
)
DARK = Theme(
    "dark",
    paper="#14171c",
    ink="#e8ebf0",
    muted="#a3adba",
    grid="#2c333d",
    series=("#56b4e9", "#f08a3c", "#75dca1", "#c97299", "#aef7ff", "#ffff96", "#477ef4", "#b55f46"),
    scale=("#1e2631", "#3487bf", "#dff3ff"),
)


class Drawing(Figure):
    """A figure with its theme and the tooltips of its points."""

    def __init__(self, theme: Theme, size: tuple[float, float]) -> None:
        self.margins = ConstrainedLayoutEngine(w_pad=_MARGIN, h_pad=_MARGIN)
        super().__init__(figsize=size, layout=self.margins, facecolor=theme.paper)
        self.patch.set_gid(BACKGROUND)
        self.theme = theme
        self.hover: dict[str, tuple[str, ...]] = {}
        self.description = ""
        self.placed = False

    def get_layout_engine(self) -> LayoutEngine | None:
        """None after `finish`: with an engine, a figure is drawn twice when it is saved."""
        return None if self.placed else super().get_layout_engine()

    def label_points(self, artist: Artist, labels: Sequence[str]) -> None:
        """Set a tooltip for each point, bar or cell of an artist, in drawing order."""
        name = f"points-{len(self.hover)}"
        artist.set_gid(name)
        self.hover[name] = tuple(printable(label) for label in labels)


def new_drawing(theme: Theme, *, size: tuple[float, float] = SINGLE, title: str = "") -> Drawing:
    """An empty figure with a left-aligned title."""
    drawing = Drawing(theme, size)
    if title:
        drawing.suptitle(
            shorten(title, int(_LETTERS_PER_INCH * size[0])),
            x=0.01,
            ha="left",
            color=theme.ink,
            fontsize=TEXT + 1,
            family=FONT,
        )
    return drawing


def new_panels(
    drawing: Drawing, columns: int, *, rows: int = 1, share_y: bool = False, share_x: bool = False
) -> list[Axes]:
    """A grid of panels, row by row."""
    grid = drawing.subplots(rows, columns, squeeze=False, sharey=share_y, sharex=share_x)
    return [panel for row in grid for panel in row]


def new_panel(
    theme: Theme, *, size: tuple[float, float] = SINGLE, title: str = "", **axes: Any
) -> tuple[Drawing, Axes]:
    """A figure of one panel; `axes` are the arguments of `style_axes`."""
    drawing = new_drawing(theme, size=size, title=title)
    (panel,) = new_panels(drawing, 1)
    style_axes(panel, theme, **axes)
    return drawing, panel


def style_axes(
    panel: Axes, theme: Theme, *, x: str = "", y: str = "", title: str = "", grid: str | None = "y", ticks: bool = True
) -> None:
    """Style axes without a frame, with a thin grid and labels in the text colour."""
    panel.set_facecolor("none")
    panel.spines[["top", "right"]].set_visible(False)
    for spine in panel.spines.values():
        spine.set(color=theme.muted, linewidth=THIN)
    tick: dict[str, Any] = {"colors": theme.muted, "labelsize": SMALL, "labelfontfamily": FONT, "width": THIN}
    panel.tick_params(which="both", length=3 if ticks else 0, **tick)
    panel.set_axisbelow(True)
    if grid is not None:
        panel.grid(visible=True, axis=grid, color=theme.grid, linewidth=THIN)  # type: ignore[arg-type]
    text: dict[str, Any] = {"color": theme.ink, "fontsize": TEXT, "family": FONT}
    panel.set_xlabel(shorten(x, 60), **text)
    panel.set_ylabel(shorten(y, 40), **text)
    if title:
        width = panel.get_position().width * panel.get_figure(root=True).get_figwidth()  # type: ignore[union-attr]
        panel.set_title(shorten_middle(title, int(_LETTERS_PER_INCH * width)), loc="left", **text)


def finish(drawing: Drawing, description: str) -> Drawing:
    """Lay out the drawing for the last time, and set its description."""
    drawing.description = printable(description)
    lay_out(drawing)
    drawing.placed = True
    return drawing


def lay_out(drawing: Drawing) -> None:
    """Lay out the drawing; texts are not parsed as formulas, whatever dollar signs they contain."""
    for text in drawing.findobj(Text):
        text.set_parse_math(False)
    with ignore_missing_glyphs():
        drawing.margins.execute(drawing)


@contextmanager
def ignore_missing_glyphs() -> Iterator[None]:
    """Ignore warnings of glyphs missing in the font: in SVG, the reader's fonts provide them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield


def printable(text: str) -> str:
    """Replace characters that cannot be drawn or written into XML: control characters, lone surrogates."""
    if not isinstance(text, str):
        raise InputError(f"A label is {text!r}; expected a text")
    return "".join(letter if letter.isprintable() else " " for letter in text)


def shorten(text: str, max_length: int) -> str:
    """Truncate a label at its end."""
    text = printable(text)
    return text if len(text) <= max_length else text[: max_length - 1].rstrip() + "…"


def shorten_middle(name: str, max_length: int) -> str:
    """Truncate a name in the middle, as models differ as often in the end as in the beginning."""
    name = printable(name)
    if len(name) <= max_length:
        return name
    end = (max_length - 1) // 2
    return f"{name[: max_length - 1 - end]}…{name[len(name) - end :]}"


def layer_ticks(count: int, max_ticks: int) -> list[int]:
    """Evenly spaced layer numbers for the ticks of an axis, including the last layer if possible."""
    depth = count - 1
    fitting = [step for step in range(1, depth + 2) if depth // step < max_ticks]
    even = [step for step in fitting[: fitting[0] + 2] if depth % step == 0]
    return list(range(0, count, (even or fitting)[0]))


def format_number(value: float) -> str:
    """Format with four significant digits."""
    return "–" if np.isnan(value) else f"{value:.4g}".replace("-", "−")
