"""The vectors of teachers: other models' embeddings of the training text, computed once and cached."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes

from layerwise.digests import text_digest
from layerwise.encoder import Array, ViewCache, ViewKey, tokenizer_fingerprint
from layerwise.model import LayerModel

Floats = NDArray[np.floating[Any]]
log = logging.getLogger(__name__)
_ROWS = 1 << 16  # that are turned at once


def teachers_vectors(teachers: Sequence[LayerModel], weights: Sequence[float], texts: Sequence[str]) -> Array:
    """The teachers' embeddings side by side, of length 1: (texts, sum of widths)

    Each is of length √weight, and the weights' sum is 1: a cosine is the weighted mean of the teachers' cosines.
    """
    vectors = [
        np.float32(weight**0.5) * _unit_vectors(teacher, texts)
        for teacher, weight in zip(teachers, weights, strict=True)
    ]
    return np.concatenate(vectors, axis=1)


def _unit_vectors(teacher: LayerModel, texts: Sequence[str]) -> Array:
    """A teacher's embeddings of length 1, (texts, width), cached as one layer for other seeds and trainings."""
    encoder, store = teacher.encoder, ViewCache()
    key = ViewKey(
        model=teacher.digest(),
        tokenizer=tokenizer_fingerprint(teacher.tokenizer),
        texts=text_digest(texts),
        pooling=f"{teacher.mix}, embeddings of length 1",
        max_length=encoder.max_length,
        dtype=encoder.dtype,
        backend=encoder.arithmetic,
        shape=(len(texts), 1, teacher.width),
    )
    vectors = store.get(key)
    if vectors is None:
        log.info("the teacher %s encodes %d sentences; they are cached", encoder.name, len(texts))

        def fill(arrays: Sequence[Array]) -> None:
            arrays[0][:, 0] = teacher.encode(list(texts), normalize_embeddings=True)

        (vectors,) = store.put_all([key], fill, label=encoder.name)
    return np.asarray(vectors[:, 0])


def rotated(vectors: Array, start: Array) -> Array:
    """Vectors of length 1 in as many dimensions as `start`, whose rows are embeddings of the first texts.

    Wider ones lose all but their first principal components, about 0 and not about the mean, so that cosines stay as
    near as so few dimensions allow. Then all are turned together to lie near the start (orthogonal Procrustes), which
    changes no cosine: a student need not learn which way a teacher's axes happen to point.
    """
    few, width = vectors[: len(start)].astype(np.float64), start.shape[1]
    _, directions = np.linalg.eigh(few.T @ few)
    kept = directions[:, ::-1][:, :width]
    kept = np.pad(kept, ((0, 0), (0, width - kept.shape[1])))  # a narrower teacher leaves dimensions empty
    turn, _ = orthogonal_procrustes(few @ kept, _unit_rows(start.astype(np.float64)))
    both = (kept @ turn).astype(np.float32)
    turned = np.empty((len(vectors), width), dtype=np.float32)
    for row in range(0, len(vectors), _ROWS):
        turned[row : row + _ROWS] = _unit_rows(vectors[row : row + _ROWS] @ both)
    return turned


def _unit_rows(vectors: Floats) -> Floats:
    """Rows of length 1."""
    lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = vectors / lengths.clip(1e-12)
    return units
