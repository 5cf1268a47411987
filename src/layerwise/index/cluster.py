"""Clusters vectors by spherical k-means and finds the rows nearest to each centre. All vectors are in memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.embed import VectorFiles
from layerwise.encoder import Array, Progress, no_progress
from layerwise.errors import InputError
from layerwise.index.exact import unit
from layerwise.index.faiss_kinds import faiss_module


@dataclass(frozen=True)
class Clusters:
    """Each row's cluster and cosine with its centre; each cluster's centre, size and nearest rows."""

    labels: NDArray[np.int64]
    cosines: Array
    centres: Array
    sizes: NDArray[np.int64]
    nearest: list[NDArray[np.int64]]


def clusters_of(
    files: VectorFiles,
    clusters: int | None = None,
    *,
    nearest: int = 3,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Clusters:
    """Run FAISS's spherical k-means; the default number of clusters is the square root of half the rows.

    Args:
        files: The vectors.
        clusters: The number of clusters.
        nearest: How many rows nearest to each centre to return.
        seed: The seed of the initial centres.
        progress: Called with numbers of rows.
    """
    count = clusters or max(1, round((files.rows / 2) ** 0.5))
    if not 1 <= count <= files.rows:
        raise InputError(f"{count} clusters of {files.rows} vectors are not possible; give 1 to {files.rows}")
    vectors = unit(files.read()[0])
    means = faiss_module().Kmeans(
        files.width, count, niter=25, spherical=True, seed=seed, min_points_per_centroid=1, max_points_per_centroid=256
    )
    means.train(vectors)
    scores, labels = means.index.search(vectors, 1)
    progress(files.rows)
    labels, cosines = labels[:, 0], scores[:, 0]
    order = np.lexsort((np.arange(files.rows), -cosines, labels))
    starts = np.searchsorted(labels[order], np.arange(count))
    sizes = np.bincount(labels, minlength=count)
    near = [order[start : start + min(nearest, size)] for start, size in zip(starts, sizes, strict=True)]
    return Clusters(labels, cosines, means.centroids.copy(), sizes, near)
