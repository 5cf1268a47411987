"""An explanation of two sentences' cosine as one HTML file: coloured words, words by words, layers by layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.explain import CONTEXTUAL, ExplainedText, Explanation
from layerwise.files import check_writable, write_text
from layerwise.report.page import asset, template

_MOST_WORDS = 60  # of a side of the table; the others are summed up in one row or column
_STRONGEST = 50  # per cent; on more the dark theme's ink can't be read
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Grid:
    """A matrix of numbers, each with the strength of its colour in per cent; negative ones have the other colour."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    sums: Any

    @property
    def cells(self) -> list[list[tuple[float, int]]]:
        """(number, strength) by row."""
        strengths = _strengths(self.sums)
        return [
            list(zip(numbers.tolist(), row.tolist(), strict=True))
            for numbers, row in zip(self.sums, strengths, strict=True)
        ]


def write_explanation(explanation: Explanation, path: Path | str, command: str = "") -> Path:
    """Write the page, whole or not at all; `command` reproduces it."""
    check_writable(path)
    write_text(path, explanation_html(explanation, command))
    return Path(path)


def explanation_html(explanation: Explanation, command: str = "") -> str:
    """The whole document, without scripts."""
    sums = explanation.by_word
    strongest = max(float(np.abs(sums.sum(axis)).max()) for axis in (0, 1))
    return template("explanation.html.jinja").render(
        explanation=explanation,
        texts=[
            _coloured(explanation.left, sums.sum(1), strongest),
            _coloured(explanation.right, sums.sum(0), strongest),
        ],
        grids=[
            _word_grid(explanation),
            Grid("Layer by layer", explanation.views, explanation.views, explanation.by_view),
        ],
        note=CONTEXTUAL,
        command=command,
        css=asset("page.css"),
        policy=_POLICY,
    )


def _coloured(text: ExplainedText, sums: Any, strongest: float) -> list[tuple[str, float, int]]:
    """Words, what each adds to the cosine, and the strength of its colour."""
    return list(zip(text.words, sums.tolist(), _strengths(sums, strongest).tolist(), strict=True))


def _word_grid(explanation: Explanation) -> Grid:
    rows, sums = _shortened(explanation.left.words, explanation.by_word)
    columns, sums = _shortened(explanation.right.words, sums.T)
    return Grid("Word by word", rows, columns, sums.T)


def _shortened(words: Sequence[str], sums: Any) -> tuple[tuple[str, ...], Any]:
    """Return the rows of the words with the largest terms, in order, and one row for all others."""
    if len(words) <= _MOST_WORDS:
        return tuple(words), sums
    shown = np.sort(np.argsort(-np.abs(sums).sum(1), kind="stable")[: _MOST_WORDS - 1])
    rest = np.delete(sums, shown, axis=0).sum(0, keepdims=True)
    labels = [*(words[row] for row in shown), f"{len(words) - len(shown)} others"]
    return tuple(labels), np.concatenate([sums[shown], rest])


def _strengths(sums: Any, strongest: float | None = None) -> Any:
    """Per cent of the strongest colour, with the sign of the number."""
    largest = float(np.abs(sums).max()) if strongest is None else strongest
    return np.rint(_STRONGEST * np.asarray(sums) / (largest or 1.0)).astype(int)
