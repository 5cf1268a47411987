"""Graded pairs as points of a plane: the most and the least alike (SG-BERT, figure 5)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.measures.material import Material
from layerwise.measures.measure import Measure, Measured, Row, add_measure

METHODS = ("pca", "tsne")
_PERPLEXITY = 30.0  # of t-SNE, less where there are few points


@dataclass(frozen=True, eq=False)
class Projection(Measured):
    """The two sentences of each pair as points: (pairs, 2, 2) is pair, left or right, x and y.

    `alike` (pairs,) marks the pairs of the highest grades, the others are of the lowest. `explained` is the share of
    variance that a PCA's two directions hold; t-SNE has none.
    """

    method: str
    mix: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    gold: NDArray[np.float64]
    alike: NDArray[np.bool_]
    points: NDArray[np.float64]
    explained: float | None
    seed: int

    def rows(self) -> list[Row]:
        """A row for each pair."""
        return [
            {"left": left, "right": right, "gold": grade, "alike": same}
            | {"left x": a[0], "left y": a[1], "right x": b[0], "right y": b[1]}
            for left, right, grade, same, (a, b) in zip(
                self.left, self.right, self.gold.tolist(), self.alike.tolist(), self.points.tolist(), strict=True
            )
        ]


def projection(material: Material, method: str = "pca", *, pairs: int = 40, seed: int = 0) -> Projection:
    """The most and the least alike pairs by the model's own embeddings, in two dimensions.

    Args:
        material: The model and graded pairs.
        method: "pca" or "tsne".
        pairs: How many, half of either kind (the paper shows 20 and 20); among equal grades the seed draws.
        seed: Of the draw and of t-SNE.
    """
    if method not in METHODS:
        raise InputError(f"Unknown method {method!r}. Known: {', '.join(METHODS)}")
    if pairs < 4:
        raise InputError(f"{pairs} pairs make no picture; give 4 or more")
    gold = material.grades
    if len(gold) < 4:
        raise InputError(f"{material.pairs.source}: {len(gold)} pairs make no picture; give 4 or more")
    least, most = _extremes(gold, min(pairs, len(gold)) // 2, seed)
    rows = np.concatenate([most, least])
    sides = np.stack([side[rows] for side in material.sides(material.embeddings)], axis=1).astype(np.float64)
    points, explained = _flattened(_units(sides.reshape(2 * len(rows), -1)), method, seed)
    alike = np.arange(len(rows)) < len(most)
    left, right = (tuple(side[row] for row in rows) for side in (material.pairs.left, material.pairs.right))
    mix, places = str(material.model.mix), points.reshape(len(rows), 2, 2)
    return Projection(method, mix, left, right, gold[rows], alike, places, explained, seed)


def _extremes(gold: NDArray[np.float64], count: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows of the lowest and of the highest grades, the lowest and the highest first."""
    drawn = np.random.default_rng(seed).permutation(len(gold))
    order = drawn[np.argsort(gold[drawn], kind="stable")]
    return order[:count], order[::-1][:count]


def _units(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of length 1, for it is their cosine that is compared; zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def _flattened(vectors: NDArray[np.float64], method: str, seed: int) -> tuple[NDArray[np.float64], float | None]:
    """(n, d) -> (n, 2), and the share of variance that a PCA keeps"""
    from sklearn.decomposition import PCA  # scikit-learn takes a second to import
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if method == "pca":
        pca = PCA(n_components=2, svd_solver="full")
        return pca.fit_transform(vectors), float(pca.explained_variance_ratio_.sum())
    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
    with threadpool_limits(1):  # threads wait for each other longer than so few points take; the points are the same
        points = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors)
    return points.astype(np.float64), None


add_measure(
    Measure(
        "projection",
        "The most and the least alike pairs as points",
        "The two sentences of a pair are joined: those of alike pairs should lie together, of unlike pairs apart.",
        projection,
        options=("method", "pairs", "seed"),
        graded=True,
    )
)
