"""One HTML file from plain values: answer, figures, pairs to explore, measures, protocol, commands.

The file is self-contained: style, script, drawings and data are in it, and its content security policy lets no other
script run. `templates/page.html.jinja` is its markup; nothing is measured or drawn here.
"""

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from layerwise.errors import InputError
from layerwise.explain import CONTEXTUAL
from layerwise.extras import require
from layerwise.files import check_writable, plain_json, write_text

if TYPE_CHECKING:
    from jinja2 import Template

# Sections cannot have these ids; all other ids of the page have an underscore, which a section's cannot have.
RESERVED_IDS = ("answer", "pairs", "measures", "protocol", "commands")
SCRIPTS = ("chart.js", "explorer.js", "page.js")

Cell: TypeAlias = str | float | None
WordTerms: TypeAlias = Sequence[tuple[str, float]]  # a sentence's words, each with what it adds to the cosine


@dataclass(frozen=True)
class Column:
    """The head of a column of texts, or of numbers with a fixed number of decimals."""

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


@dataclass(frozen=True)
class PairTerms:
    """The terms of a pair's cosine: by words of either sentence, pairs of words, and pairs of layers.

    The terms of each sum to `total`, and `residual` is what they leave of the cosine. One layer has no `by_layer`.
    """

    left: WordTerms
    right: WordTerms
    by_word: Table
    by_layer: Table | None
    cosine: float
    total: float
    residual: float


@dataclass(frozen=True)
class ExplainedPairs:
    """The terms of some pairs by the number of the pair, or the reason why there are none."""

    terms: Mapping[int, PairTerms] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Explorer:
    """`similarities` (n, layers) and `mix_similarities` (n) are cosines of the n pairs (left, right, grade or None).

    `recommended` names the set of layers that the answer recommends; `recommended_similarities` (n) are its cosines,
    None where it is the model's own mix. A second model beside it has `other_similarities` (n, its layers) and, where
    its layers have other labels, `other_layers`. `explained` has the terms of some pairs' `mix_similarities`.
    """

    pairs: Sequence[tuple[str, str, float | None]]
    layers: Sequence[str]
    similarities: Any
    mix_name: str
    mix_similarities: Any
    name: str = "this model"
    other_name: str = ""
    other_similarities: Any = None
    other_layers: Sequence[str] = ()
    explained: ExplainedPairs = field(default_factory=ExplainedPairs)
    recommended: str = ""
    recommended_similarities: Any = None

    def __post_init__(self) -> None:
        count = len(self.pairs)
        if count == 0 or len(self.layers) == 0:
            raise InputError(f"An explorer of {count} pairs and {len(self.layers)} layers shows nothing; give some")
        _check("similarities", self.similarities, (count, len(self.layers)))
        _check("mix_similarities", self.mix_similarities, (count,))
        if self.recommended_similarities is not None:
            _check("recommended_similarities", self.recommended_similarities, (count,))
        if self.other_similarities is not None:
            _check("other_similarities", self.other_similarities, (count, len(self.other_layers or self.layers)))


def explorer_data(explorer: Explorer) -> dict[str, Any]:
    """Return the data of the page's script; cosines have three decimals to keep thousands of pairs small."""
    data: dict[str, Any] = {
        "pairs": explorer.pairs,
        "name": explorer.name,
        "layers": explorer.layers,
        "rows": rounded_cosines(explorer.similarities),
        "mix": {"name": explorer.mix_name, "values": rounded_cosines(explorer.mix_similarities)},
        "recommended": None,
        "other": None,
        "terms": {number: _terms_data(terms) for number, terms in explorer.explained.terms.items()},
    }
    if explorer.recommended:
        same = explorer.recommended_similarities is None
        cosines = explorer.mix_similarities if same else explorer.recommended_similarities
        data["recommended"] = {"name": explorer.recommended, "values": rounded_cosines(cosines), "is_mix": same}
    if explorer.other_similarities is not None:
        layers = explorer.other_layers or explorer.layers
        name = explorer.other_name or "the other model"
        data["other"] = {"name": name, "layers": layers, "rows": rounded_cosines(explorer.other_similarities)}
    return data


def _terms_data(pair: PairTerms) -> dict[str, Any]:
    """Terms have four decimals, as `layerwise explain` prints them."""
    return {
        "words": [[(word, round(term, 4)) for word, term in side] for side in (pair.left, pair.right)],
        "by_word": _table_data(pair.by_word),
        "by_layer": None if pair.by_layer is None else _table_data(pair.by_layer),
        "cosine": round(pair.cosine, 4),
        "total": round(pair.total, 4),
        "residual": f"{pair.residual:.1e}",
    }


def _table_data(table: Table) -> list[list[Cell]]:
    """The heads, then the rows."""
    digits = [column.digits for column in table.columns]
    rows = [list(map(_rounded_cell, row, digits)) for row in table.rows]
    return [[column.name for column in table.columns], *rows]


def _rounded_cell(cell: Cell, digits: int) -> Cell:
    return round(cell, digits) if isinstance(cell, float) else cell


def _check(name: str, values: Any, shape: tuple[int, ...]) -> None:
    if np.shape(values) != shape:
        raise InputError(f"{name} has the shape {np.shape(values)}; the pairs and layers ask for {shape}")


def rounded_cosines(values: Any) -> Any:
    """Cosines as the page shows and ranks them."""
    return np.round(np.asarray(values, dtype=np.float64), 3).tolist()


@dataclass(frozen=True)
class Fact:
    """A value of the answer, shown on a card."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """An inline SVG in the theme's variables. It is trusted, and its ids are unique on the page.

    The text of a point's tooltip is the `data-label` of an element of the class `point`. A wide figure takes the whole
    row.
    """

    svg: str
    title: str
    how_to_read: str
    note: str = ""
    wide: bool = False

    def __post_init__(self) -> None:
        if not re.match(r"<svg[\s>]", self.svg):
            raise InputError(f"Figure {self.title!r}: {self.svg[:30]!r} is not a drawing; give an <svg> element")


@dataclass(frozen=True)
class Section:
    """Figures on one question."""

    id: str
    title: str
    figures: tuple[Figure, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.id) or self.id in RESERVED_IDS:
            raise InputError(f"Section id {self.id!r}: give small letters, digits and dashes, none of {RESERVED_IDS}")


@dataclass(frozen=True)
class Page:
    """The content of a report. `css` sets the theme's variables (--ink, --paper, --grid, --series-1 to -8)."""

    title: str
    subtitle: str
    answer: tuple[str, ...]
    headline: tuple[Fact, ...]
    sections: tuple[Section, ...]
    measures: Table
    explorer: Explorer | None = None
    protocol: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()
    css: str = ""
    generated: str = ""

    def __post_init__(self) -> None:
        ids = [section.id for section in self.sections]
        duplicates = sorted({name for name in ids if ids.count(name) > 1})
        if duplicates:
            raise InputError(f"Section ids {duplicates} are there more than once; give each section its own")


def write_page(page: Page, path: Path | str) -> Path:
    """Write the page as one file, atomically; lone surrogates become question marks."""
    check_writable(path)
    write_text(path, page_html(page))
    return Path(path)


def command_line(*words: str) -> str:
    """A command as it is typed."""
    return shlex.join(["layerwise", *words])


def page_html(page: Page) -> str:
    """The whole document."""
    script = "\n".join(map(asset, SCRIPTS))
    css = "\n".join([asset("page.css"), page.css]).replace("</", r"<\/")  # which would end the element
    return template("page.html.jinja").render(
        page=page,
        css=css,
        script=script,
        policy=_script_policy(script),
        contextual=CONTEXTUAL,
        pair_data=None if page.explorer is None else plain_json(explorer_data(page.explorer)),
    )


@cache
def template(name: str) -> "Template":
    """Load a template with autoescaping."""
    require("report", "an HTML page", "jinja2")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("layerwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": format_number, "unbroken": _unbroken, "paragraphs": _paragraphs}
    environment.tests["missing"] = _is_missing
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    return environment.get_template(name)


def format_number(value: float, digits: int) -> str:
    """Format a number for a cell.

    >>> format_number(-1234.5, 1)
    '−1,234.5'
    """
    return f"{float(value):z,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _is_missing(cell: Cell) -> bool:
    return cell is None or (not isinstance(cell, str) and not isfinite(cell))


def _unbroken(text: str) -> str:
    """Keep a number with its per cent sign or plus-minus on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _paragraphs(text: str) -> list[str]:
    """Paragraphs, which blank lines separate."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def _script_policy(script: str) -> str:
    """Return a content security policy: only this script may run, and nothing may be loaded."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def asset(name: str) -> str:
    """The text of a style sheet or script of this room."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
