"""Runs the blocks of a documentation page in order, and compares what they print with what the page shows.

A page has ```python and ```bash blocks; a ```text block after them shows their output. A line … stands for lines that
are left out; seconds, bytes and what rounding leaves (e-07 and less) may differ, and all numbers of a block after the
comment `numbers may differ`, such as those of a training, which depend on the machine. Everything else is as printed.
"""

import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from support.commands import call

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
_FENCE = re.compile(r"^(<!-- numbers may differ -->\n)?```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"(^|\s+)#(\s.*)?$")
_NUMBER = re.compile(r"[-+−]?\d[\d,.]*(e-?\d+)?")
_ROUNDING = re.compile(r"[-+−]?\d(?:\.\d+)?e-(?:0[7-9]|[1-9]\d)")
_TIMES = re.compile(r"\d[\d,.]*(?= ?(?:s|ms|kB|MB|rows/s|texts/s|sentences/s)\b)")


@dataclass(frozen=True)
class Block:
    """A fence of a page."""

    language: str
    text: str
    is_near: bool = False


def blocks_of(page: Path) -> list[Block]:
    fences = _FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(language, text, bool(near)) for near, language, text in fences]


def name_of(page: Path) -> str:
    """How a page is called: its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def lines_of(block: Block) -> list[str]:
    """Each command of a bash block, comments left out; a line that ends with \\ goes on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line for line in (_COMMENT.sub("", line).strip() for line in lines) if line]


def commands_of(block: Block) -> list[list[str]]:
    """The words of each command of ours in a bash block."""
    return [shlex.split(line)[1:] for line in lines_of(block) if line.startswith("layerwise ")]


def run_page(page: Path, *, skip: Callable[[Block], bool] = lambda _: False) -> Iterator[tuple[Block, str]]:
    """Run every block in the current folder: each ```text block, and what was printed before it."""
    printed, names = "", {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.language == "text":
            yield block, printed
            printed = ""
        elif block.language == "python" and not skip(block):
            printed += run_python(block.text, names)
        elif block.language == "bash" and not skip(block):
            printed += "".join(call(*command) for command in commands_of(block))


def run_python(code: str, names: dict) -> str:
    """What Python lines print."""
    output = io.StringIO()
    with redirect_stdout(output):
        exec(compile(code, "page.md", "exec"), names)  # noqa: S102
    return output.getvalue()


def assert_shown(shown: Block, printed: str) -> None:
    """Each line that a page shows was printed, in this order; where it has …, lines may be left out."""
    expected, lines = ([_normal(line, shown.is_near) for line in text.splitlines()] for text in (shown.text, printed))
    lines = [line for line in lines if line]
    place, anywhere = 0, False
    for line in filter(None, expected):
        if line == "…":
            anywhere = True
            continue
        rest = lines[place:]
        assert line in (rest if anywhere else rest[:1]), f"the page shows {line!r}; printed: {rest[:5]!r}"
        place, anywhere = place + rest.index(line) + 1, False
    assert anywhere or place == len(lines), f"the page leaves out {lines[place:]!r} without …"


def _normal(line: str, is_near: bool) -> str:
    """Words, without the widths of columns, rules, durations and, if they may differ, numbers."""
    line = _ROUNDING.sub("0", line)
    line = _NUMBER.sub("0", line) if is_near else _TIMES.sub("0", line)
    return " ".join(line.replace("─", "").split())
