"""Graded pairs as points of a plane: the most and the least alike (SG-BERT, figure 5)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise import plots
from layerwise.errors import InputError
from layerwise.measures.measure import Figure, Measure, MeasureValue, Row, Values
from layerwise.measures.model_on_pairs import ModelOnPairs
from layerwise.registry import check_known

METHODS = {"pca": "PCA", "tsne": "t-SNE"}
_FEWEST_PAIRS = 4
_PERPLEXITY = 30.0  # of t-SNE, less where there are few points


@dataclass(frozen=True, eq=False)
class Projection(MeasureValue):
    """The two sentences of each pair as points: (pairs, 2, 2) is pair, left or right, x and y.

    `alike` (pairs,) marks the pairs of the highest scores, the others are of the lowest. `explained` is the share of
    variance of PCA's two directions; t-SNE has none.
    """

    method: str
    mix: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    grades: NDArray[np.float64]
    alike: NDArray[np.bool_]
    points: NDArray[np.float64]
    explained: float | None
    seed: int

    def rows(self) -> list[Row]:
        """Return a row per pair."""
        return [
            {"left": left, "right": right, "grade": grade, "alike": same}
            | {"left x": a[0], "left y": a[1], "right x": b[0], "right y": b[1]}
            for left, right, grade, same, (a, b) in zip(
                self.left, self.right, self.grades.tolist(), self.alike.tolist(), self.points.tolist(), strict=True
            )
        ]


def measure_projection(subject: ModelOnPairs, method: str = "pca", *, pairs: int = 40, seed: int = 0) -> Projection:
    """The most and the least alike pairs by the model's embeddings, in two dimensions.

    Args:
        subject: The model and pairs with scores.
        method: "pca" or "tsne".
        pairs: How many, half of either kind (the paper shows 20 and 20); among equal scores the seed draws.
        seed: Of the draw and of t-SNE.
    """
    check_known(method, METHODS, "method")
    if pairs < _FEWEST_PAIRS:
        raise InputError(f"{pairs} pairs make no picture; give {_FEWEST_PAIRS} or more")
    gold = subject.grades
    if len(gold) < _FEWEST_PAIRS:
        raise InputError(f"{subject.pairs.source}: {len(gold)} pairs make no picture; give {_FEWEST_PAIRS} or more")
    lowest, highest = _extremes(gold, min(pairs, len(gold)) // 2, seed)
    rows = np.concatenate([highest, lowest])
    sides = np.stack([side[rows] for side in subject.sides(subject.embeddings)], axis=1).astype(np.float64)
    points, explained = _project(_units(sides.reshape(2 * len(rows), -1)), method, seed)
    alike = np.arange(len(rows)) < len(highest)
    left, right = (tuple(side[row] for row in rows) for side in (subject.pairs.left, subject.pairs.right))
    mix, places = str(subject.model.mix), points.reshape(len(rows), 2, 2)
    return Projection(method, mix, left, right, gold[rows], alike, places, explained, seed)


def _extremes(gold: NDArray[np.float64], count: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows of the lowest and of the highest scores, the lowest and the highest first."""
    drawn = np.random.default_rng(seed).permutation(len(gold))
    order = drawn[np.argsort(gold[drawn], kind="stable")]
    return order[:count], order[::-1][:count]


def _units(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normalise rows to length 1, as cosines are compared; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def _project(vectors: NDArray[np.float64], method: str, seed: int) -> tuple[NDArray[np.float64], float | None]:
    """(n, d) -> (n, 2), and the share of variance that PCA explains"""
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


def _by_tsne(subject: ModelOnPairs) -> dict[str, Any] | None:
    graded = subject.pairs.gold is not None and len(subject.pairs) >= _FEWEST_PAIRS
    return {"method": "tsne"} if graded else None


def _plot(values: Values[Projection], theme: "plots.Theme") -> "plots.Drawing":
    """Draw a panel per model; the pairs are the same, as they are selected by their scores."""
    first = next(iter(values.values()))
    return plots.pair_map(
        points={name: value.points for name, value in values.items()},
        grades=first.grades,
        texts=list(zip(first.left, first.right, strict=True)),
        method=METHODS[first.method],
        theme=theme,
    )


MEASURE = Measure(
    "projection",
    "The most and the least alike pairs as points",
    "The two sentences of a pair are joined: those of alike pairs should lie together, of unlike pairs apart.",
    measure_projection,
    graded=True,
    figures=(
        Figure(
            _plot,
            title="The most and the least alike pairs (t-SNE)",
            reading="The two sentences of a pair are joined: those of high grade should lie together, of low grade "
            "apart.",
            section="space",
        ),
    ),
    in_report=_by_tsne,
)
