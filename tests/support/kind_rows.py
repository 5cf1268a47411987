"""Rows of a task in memory, and the toy encoder that mteb's reference scores were made with."""

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.data import Task, TaskRows
from layerwise.kinds import Outcome, Problem

TOY_WIDTH = 256


class ToyEncoder:
    """256 signed counts of words by their crc32, as described beside the reference scores."""

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        vectors = np.zeros((len(texts), TOY_WIDTH), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                number = zlib.crc32(word.encode())
                vector[number % TOY_WIDTH] += 1 if (number >> 8) & 1 else -1
        return vectors


def rows_of(
    kind: str,
    left: Sequence[str],
    right: Sequence[str] = (),
    labels: Sequence[Any] = (),
    *,
    splits: Mapping[str, Sequence[int]] | None = None,
    subsets: Sequence[str] = (),
    left_ids: Sequence[str] = (),
    right_ids: Sequence[str] = (),
    corpus: Mapping[str, str] | None = None,
    **declared: Any,
) -> TaskRows:
    """As a file would give them; without splits all rows test."""
    task = Task(
        name="rows",
        kind=kind,
        file="rows.csv",
        splits={role: (role,) for role in splits or ()},
        **({"corpus": {"file": "corpus.csv"}} if corpus else {}),
        **declared,
    )
    by_role = {role: np.array(rows) for role, rows in (splits or {"test": range(len(left))}).items()}
    return TaskRows(
        task,
        list(left),
        list(right),
        list(labels),
        list(subsets),
        by_role,
        file="rows.csv",
        numbers=list(range(1, len(left) + 1)),
        left_ids=list(left_ids),
        right_ids=list(right_ids),
        corpus=dict(corpus or {}),
    )


def score(problem: Problem, vectors: Mapping[str, np.ndarray]) -> Outcome:
    """The outcome by the vector of each text, given by the text itself."""
    return problem.score({role: np.stack([vectors[text] for text in texts]) for role, texts in problem.texts.items()})


def random_vectors(texts: Sequence[str], *, seed: int = 0, width: int = 6) -> dict[str, np.ndarray]:
    """A vector for each different text."""
    random = np.random.default_rng(seed)
    return {text: random.normal(size=width).astype(np.float32) for text in dict.fromkeys(texts)}
