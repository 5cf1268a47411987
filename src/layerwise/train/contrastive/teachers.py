"""Teacher vectors: other models' embeddings of the training text, computed once and cached."""

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
_ROWS = 1 << 16  # rotated at once


def teachers_vectors(teachers: Sequence[LayerModel], weights: Sequence[float], texts: Sequence[str]) -> Array:
    """Concatenate the teachers' embeddings to unit vectors: (texts, sum of widths)

    Each has length √weight, and the weights sum to 1: a cosine is the weighted mean of the teachers' cosines.
    """
    ends = np.cumsum([teacher.width for teacher in teachers])
    vectors = np.empty((len(texts), ends[-1]), dtype=np.float32)
    for teacher, weight, end in zip(teachers, weights, ends, strict=True):
        part = vectors[:, end - teacher.width : end]
        np.multiply(_unit_vectors(teacher, texts), np.float32(weight**0.5), out=part)
    return vectors


def _unit_vectors(teacher: LayerModel, texts: Sequence[str]) -> Array:
    """Return a teacher's normalised embeddings, (texts, width), cached as one layer for other seeds and trainings."""
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
    """Project unit vectors to the width of `start`, whose rows are embeddings of the first texts, and rotate them.

    Wider vectors are reduced to their first principal components, uncentred, which preserves cosines best. Then all are
    rotated towards `start` (orthogonal Procrustes), which changes no cosine: a student need not learn the arbitrary
    orientation of a teacher's axes.
    """
    first, width = vectors[: len(start)].astype(np.float64), start.shape[1]
    _, directions = np.linalg.eigh(first.T @ first)
    components = directions[:, ::-1][:, :width]
    components = np.pad(components, ((0, 0), (0, width - components.shape[1])))  # of a narrower teacher
    rotation, _ = orthogonal_procrustes(first @ components, _unit_rows(start.astype(np.float64)))
    projection = (components @ rotation).astype(np.float32)
    result = np.empty((len(vectors), width), dtype=np.float32)
    for row in range(0, len(vectors), _ROWS):
        result[row : row + _ROWS] = _unit_rows(vectors[row : row + _ROWS] @ projection)
    return result


def _unit_rows(vectors: Floats) -> Floats:
    """Normalise rows to length 1."""
    lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = vectors / lengths.clip(1e-12)
    return units
