"""What an int8 graph loses against the float graph, on the sentences and graded pairs of the package."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.encoder.arrays import Array
from layerwise.errors import InputError
from layerwise.files import read_json
from layerwise.metrics import spearman

Encode = Callable[[Sequence[str]], Array]  # texts to views (texts, layers, width)


@dataclass(frozen=True)
class Int8Loss:
    """What an int8 graph loses against the float graph, on the sentences and graded pairs of the package.

    `cosine` is the mean over sentences of each layer's cosine with float; `points` are Spearman × 100 of the pairs.
    """

    cosine: list[float]
    points_float: list[float]
    points_int8: list[float]
    sentences: int
    pairs: int

    def __str__(self) -> str:
        lost = self.points_float[-1] - self.points_int8[-1]
        return (
            f"cosine with float {self.cosine[-1]:.4f}, {self.points_int8[-1]:.1f} points instead of "
            f"{self.points_float[-1]:.1f} on {self.pairs} pairs ({-lost:+.2f})"
        )


def stored_loss(path: Path, sha256: str) -> Int8Loss | None:
    """The loss of the graph with this checksum from its file; None if the file is missing, damaged or of another."""
    try:
        facts = read_json(path)
        if facts["sha256"] != sha256:
            return None
        cosine, points_float, points_int8 = (
            [_number(value) for value in facts[name]] for name in ("cosine", "points_float", "points_int8")
        )
        loss = Int8Loss(cosine, points_float, points_int8, int(facts["sentences"]), int(facts["pairs"]))
        return loss if cosine and points_float and points_int8 else None
    except (InputError, KeyError, TypeError, ValueError):
        return None


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)  # JSON has no NaN


def calibration_pairs() -> tuple[list[str], list[str], list[float]]:
    """The graded pairs that come with the package."""
    text = (resources.files("layerwise.data") / "demo_pairs.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return [row["sentence1"] for row in rows], [row["sentence2"] for row in rows], [float(row["score"]) for row in rows]


def measure_loss(encode_float: Encode, encode_int8: Encode) -> Int8Loss:
    """Compare two graphs on the sentences of the package."""
    left, right, gold = calibration_pairs()
    corpus = (resources.files("layerwise.data") / "demo_corpus.txt").read_text(encoding="utf-8").splitlines()
    texts = [*left, *right, *corpus]
    views = [encode(texts) for encode in (encode_float, encode_int8)]
    points = []
    for array in views:
        similarity = _cosine(array[: len(left)], array[len(left) : len(left) + len(right)])
        points.append([100 * spearman(layer, np.asarray(gold)) for layer in similarity.T])  # NaN: layer 0 by cls
    return Int8Loss(
        cosine=_cosine(*views).mean(0).tolist(),
        points_float=points[0],
        points_int8=points[1],
        sentences=len(texts),
        pairs=len(left),
    )


def _cosine(left: Array, right: Array) -> Array:
    """(texts, layers, width) twice -> (texts, layers)"""
    lengths = np.linalg.norm(left, axis=2) * np.linalg.norm(right, axis=2)
    similarity: Array = (left * right).sum(2) / np.maximum(lengths, 1e-12)
    return similarity
