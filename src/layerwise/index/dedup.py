"""Near duplicates: each row is either kept or represented by an earlier kept row above a cosine threshold.

Rows are processed in order. A row whose cosine with a kept row reaches the threshold is a duplicate of the nearest
such row; otherwise it is kept. So no two kept rows are near duplicates, and every duplicate is near the row that
represents it. Kept rows are searched by FAISS: exactly, or in inverted lists where there are many.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.embed import VectorFiles
from layerwise.encoder import Array, Progress, no_progress
from layerwise.errors import InputError
from layerwise.index.exact import unit
from layerwise.index.faiss_kinds import KINDS, new_index, set_effort, training_rows
from layerwise.registry import check_known

_BLOCK = 1024  # rows compared with all kept rows at once
_EXACT_ROWS = 200_000  # above it, kept rows are searched in inverted lists
_NPROBE = 16


@dataclass(frozen=True)
class Duplicates:
    """For each row: the row that represents it (itself if it is kept), and the cosine with it."""

    representatives: NDArray[np.int64]
    cosines: Array
    threshold: float
    kind: str

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which rows are kept."""
        return np.equal(self.representatives, np.arange(len(self.representatives)))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """For each row, the size of its group, including the representative."""
        counts = np.bincount(self.representatives, minlength=len(self.representatives))
        return counts[self.representatives]


def find_duplicates(
    files: VectorFiles, *, threshold: float = 0.95, kind: str = "auto", seed: int = 0, progress: Progress = no_progress
) -> Duplicates:
    """Find near duplicates: vectors whose cosine reaches a threshold.

    Args:
        files: The vectors.
        threshold: The minimum cosine of two duplicates.
        kind: "flat" (exact), "ivf" (inverted lists, which may miss some), or "auto" to choose by size.
        seed: The seed of the sample that inverted lists are trained on.
        progress: Called with numbers of rows.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold {threshold} is no cosine above 0 and at most 1; give one such as 0.95")
    check_known(kind, ("auto", "flat", "ivf"), "kind of search")
    kind = kind if kind != "auto" else "flat" if files.rows <= _EXACT_ROWS else "ivf"
    index = new_index(KINDS[kind], files.width, files.rows, _training(files, kind, seed), seed=seed)
    set_effort(index, KINDS[kind], _NPROBE)
    representatives, cosines = np.arange(files.rows), np.ones(files.rows, dtype=np.float32)
    for batch in files.batches(rows=_BLOCK):
        rows = slice(batch.start, batch.start + len(batch.vectors))
        representatives[rows], cosines[rows] = _block(index, unit(batch.vectors), batch.start, threshold)
        progress(len(batch.vectors))
    return Duplicates(representatives, cosines, threshold, kind)


def _block(index: Any, vectors: Array, start: int, threshold: float) -> tuple[NDArray[np.int64], Array]:
    """Return representatives and cosines of some rows, and add the kept ones to the index."""
    rows = np.arange(start, start + len(vectors))
    nearest, scores = rows.copy(), np.ones(len(vectors), dtype=np.float32)
    best_scores, best_rows = (
        index.search(vectors, 1) if index.ntotal else (np.full((len(rows), 1), -1.0), rows[:, None])
    )
    block_scores = vectors @ vectors.T
    kept: list[int] = []
    for position in range(len(vectors)):
        score, row = (float(best_scores[position, 0]), int(best_rows[position, 0])) if index.ntotal else (-1.0, -1)
        if kept:
            best = kept[int(np.argmax(block_scores[position, kept]))]
            if block_scores[position, best] > score or row < 0:
                score, row = float(block_scores[position, best]), start + best
        if row >= 0 and score >= threshold:
            nearest[position], scores[position] = row, score
        else:
            kept.append(position)
    if kept:
        index.add_with_ids(np.ascontiguousarray(vectors[kept]), rows[kept])
    return nearest, scores


def _training(files: VectorFiles, kind: str, seed: int) -> Array:
    if kind == "flat":
        return np.empty((0, files.width), dtype=np.float32)
    chosen = np.random.default_rng(seed).choice(files.rows, training_rows(files.rows), replace=False)
    parts = []
    for batch in files.batches():
        positions = np.sort(chosen[(chosen >= batch.start) & (chosen < batch.start + len(batch.vectors))])
        parts.append(unit(batch.vectors[positions - batch.start]))
    return np.concatenate(parts)
