"""One HTML file from a value: answer, figures, pairs to explore, measures, protocol, commands.

The file needs nothing from anywhere: style, script, drawings and data are in it, and its content security policy lets
no other script run. Nothing is measured or drawn here.
"""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from layerwise.errors import InputError
from layerwise.report.explorer import Explorer, explorer_html
from layerwise.report.markup import escaped, paragraphs, script_policy, style, with_own_ids
from layerwise.report.table import Cell, Column, Table, table_html

__all__ = ["Cell", "Column", "Explorer", "Fact", "Figure", "Page", "Section", "Table", "page_html", "write_page"]

# Sections may not have these; all other ids of the page hold an underscore, which a section's can not.
OWN_IDS = ("answer", "pairs", "measures", "protocol", "commands")
SCRIPTS = ("chart.js", "explorer.js", "page.js")


@dataclass(frozen=True)
class Fact:
    """One figure of the answer, on a card."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """An inline SVG, trusted as it is, that draws in the theme's variables.

    What is to be told of a point stands in the `data-label` of an element of the class `point`. A wide figure takes
    the whole row.
    """

    svg: str
    title: str
    how_to_read: str
    note: str = ""
    wide: bool = False

    def __post_init__(self) -> None:
        if not re.search(r"<svg[\s>]", self.svg):
            raise InputError(f"Figure {self.title!r}: {self.svg[:30]!r} is not a drawing; give an <svg> element")


@dataclass(frozen=True)
class Section:
    """Figures on one question."""

    id: str
    title: str
    figures: tuple[Figure, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.id) or self.id in OWN_IDS:
            raise InputError(f"Section id {self.id!r}: give small letters, digits and dashes, none of {OWN_IDS}")


@dataclass(frozen=True)
class Page:
    """All that a report says. `css` sets the theme's variables (--ink, --paper, --grid, --series-1 to -8)."""

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
        twice = sorted({one for one in ids if ids.count(one) > 1})
        if twice:
            raise InputError(f"Section ids {twice} are there more than once; give each section its own")


def write_page(page: Page, path: Path | str) -> Path:
    """The file is whole or not there. Half surrogate pairs, which UTF-8 has not, become question marks."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file, such as {path / 'report.html'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(page_html(page).encode("utf-8", "replace"))
    new.replace(path)
    return path


def page_html(page: Page) -> str:
    """The whole document."""
    script = "\n".join(map(_asset, SCRIPTS))
    parts = _parts(page)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escaped(script_policy(script))}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escaped(page.title)}</title>
{style(_asset("page.css"), page.css)}
<script>{script}</script>
</head>
<body>
<a class="skip" href="#answer">To the answer</a>
<header>
<div><h1 dir="auto">{escaped(page.title)}</h1><p dir="auto">{escaped(page.subtitle)}</p></div>
<button type="button" id="theme_button" hidden>Dark</button>
</header>
<div class="columns">
<nav class="contents" aria-label="Contents"><ul>{"".join(_link(name, title) for name, title, _ in parts)}</ul></nav>
<main>
{"".join(_part(name, title, body) for name, title, body in parts)}
</main>
</div>
<footer><p>{escaped(page.generated)}</p></footer>
</body>
</html>
"""


def _parts(page: Page) -> list[tuple[str, str, str]]:
    """Id, title and HTML of each part of the page, in order; without those that have nothing to show."""
    drawn = 0
    parts = [("answer", "Answer", _answer(page))]
    for section in page.sections:
        figures = "".join(_figure(figure, drawn + number) for number, figure in enumerate(section.figures, start=1))
        drawn += len(section.figures)
        grid = f'<div class="figures">{figures}</div>' if figures else ""
        parts.append((section.id, section.title, paragraphs(section.text) + grid))
    if page.explorer is not None:
        parts.append(("pairs", "Pair by pair", explorer_html(page.explorer)))
    if page.measures.rows:
        parts.append(("measures", "All measures", table_html(page.measures, label="All measures")))
    if page.protocol:
        parts.append(("protocol", "Protocol", _protocol(page.protocol)))
    if page.commands:
        parts.append(("commands", "Do it again", _commands(page.commands)))
    return parts


def _link(name: str, title: str) -> str:
    return f'<li><a href="#{name}">{escaped(title)}</a></li>'


def _part(name: str, title: str, body: str) -> str:
    heading = f'<h2 id="{name}_title">{escaped(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}_title">{heading}\n{body}</section>\n'


def _answer(page: Page) -> str:
    sentences = "".join(f'<p class="answer" dir="auto">{_kept(escaped(sentence))}</p>' for sentence in page.answer)
    facts = "".join(
        f'<div><dt>{escaped(fact.label)}</dt><dd class="value">{escaped(fact.value)}</dd>'
        f'<dd class="note">{escaped(fact.note)}</dd></div>'
        for fact in page.headline
    )
    return sentences + (f'<dl class="facts">{facts}</dl>' if facts else "")


def _kept(text: str) -> str:
    """A number and its per cent sign, or its plus-minus, stay on one line."""
    return text.replace(" %", "&nbsp;%").replace(" ± ", "&nbsp;±&nbsp;")


def _figure(figure: Figure, number: int) -> str:
    """Drawings of many libraries begin with an XML declaration, which has no place inside a page."""
    start = re.search(r"<svg[\s>]", figure.svg)
    svg = with_own_ids(figure.svg[start.start() if start else 0 :], f"figure_{number}_")
    name = f"figure_{number}"
    note = f'<p class="note">{escaped(figure.note)}</p>' if figure.note else ""
    return f"""<figure{' class="wide"' if figure.wide else ""} aria-labelledby="{name}_title">
<figcaption><h3 id="{name}_title">{escaped(figure.title)}</h3><p>{escaped(figure.how_to_read)}</p></figcaption>
<div class="drawing" role="group" aria-labelledby="{name}_title">{svg}</div>{note}
</figure>
"""


def _protocol(protocol: tuple[tuple[str, str], ...]) -> str:
    facts = "".join(
        f'<div><dt>{escaped(name)}</dt><dd dir="auto">{escaped(told)}</dd></div>' for name, told in protocol
    )
    return f'<dl class="pairs">{facts}</dl>'


def _commands(commands: tuple[str, ...]) -> str:
    lines = "".join(f"<pre><code>{escaped(command)}</code></pre>" for command in commands)
    return f'<div class="commands">{lines}</div>'


def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
