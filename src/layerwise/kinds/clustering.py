"""Clustering: k-means with as many clusters as classes, scored by V-measure, as in mteb.

`v_measure` is mteb's first protocol: every set of texts is clustered once. `v_measure_sampled` is its newer one: 4 % of
the texts, then ten draws of 16,384 with replacement. It is noisy on small sets, so it is computed only if it is the
task's metric.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.kinds.problem import Outcome, RowProblem, Units
from layerwise.kinds.protocol import Protocol
from layerwise.metrics.numbers import Codes, Numbers
from layerwise.muted import no_convergence_warnings

SEED = 42  # mteb's
_BATCH, _SAMPLED_BATCH = 500, 512
_SAMPLE_SHARE, _DRAWS, _DRAW_SIZE = 0.04, 10, 16_384


@dataclass(frozen=True, eq=False)
class Clustering(RowProblem):
    """Rows with their classes as numbers, and the rows of each set."""

    sets: list[NDArray[np.intp]] = field(default_factory=list)
    seed: int = SEED

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:  # noqa: ARG003 - as Problem
        """Build from the test rows; subsets are clustered separately."""
        require("evaluate", "clustering", "sklearn")
        tested = rows.of_role("test")
        _, classes = np.unique(np.asarray(tested.labels), return_inverse=True)
        subsets = np.asarray(tested.subsets or [""] * len(tested))
        sets = [np.flatnonzero(subsets == name) for name in dict.fromkeys(subsets.tolist())]
        for members in sets:
            if len(np.unique(classes[members])) < 2:
                subset = f" of subset {str(subsets[members[0]])!r}" if len(sets) > 1 else ""
                raise InputError(f"task {rows.task.name!r}: all rows{subset} have one class; clusters need 2 or more")
        return replace(cls._of(tested, sets=sets), labels=classes)

    def pick(self, units: Units) -> Self:
        """Select rows, which keep their sets."""
        places = np.full(len(self), -1)
        places[units] = np.arange(len(units))
        sets = [places[members][places[members] >= 0] for members in self.sets]
        if any(len(np.unique(self.labels[units[members]])) < 2 for members in sets):
            raise InputError(f"{len(units)} of {len(self)} rows have one class; clusters need 2: give more rows")
        return replace(super().pick(units), sets=sets)

    def reseeded(self, count: int) -> list[Self]:
        """The same with other random starts."""
        return [self, *(replace(self, seed=self.seed + number) for number in range(1, count))]

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """The mean V-measure × 100 of the sets, and the sampled one if it is the metric."""
        from sklearn.metrics import v_measure_score

        embeddings = vectors[""][self.left]
        clusters = [_k_means(embeddings[members], self.labels[members], self.seed) for members in self.sets]
        scores = [v_measure_score(self.labels[rows], labels) for rows, labels in zip(self.sets, clusters, strict=True)]
        figures, sd = {"v_measure": 100 * float(np.mean(scores))}, {}
        details: dict[str, Any] = {"classes": int(self.labels.max()) + 1}
        if len(self.sets) > 1:
            details["v_measure_by_set"] = [100 * float(score) for score in scores]
        sampled = self.task.metric == "v_measure_sampled"
        if sampled:
            draws = 100 * sampled_v_measures(embeddings, self.labels)
            figures["v_measure_sampled"] = float(draws.mean())
            sd = {"v_measure_sampled": float(draws.std(ddof=1))}
        if sampled or len(self.sets) > 1:  # the metric is not the V-measure of one clustering
            return Outcome(figures, items=np.empty(0), sd=sd, details=details)
        return Outcome(figures, clusters[0].astype(np.float64), self.labels.astype(np.float64), sd, details)


def _k_means(embeddings: Array, classes: Codes, seed: int) -> Codes:
    """The cluster of each row. (n, d), (n,) -> (n,)"""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(len(np.unique(classes)), batch_size=_BATCH, n_init="auto", random_state=seed)
    with no_convergence_warnings():  # for a layer with the same vector for all texts
        clusters: Codes = model.fit(embeddings).labels_
    return clusters


def sampled_v_measures(embeddings: Array, classes: Codes) -> Numbers:
    """The V-measures of mteb's ten draws from 4 % of the rows. (n, d), (n,) -> (10,)"""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.metrics import v_measure_score

    generator = random.Random(SEED)  # noqa: S311 - as in mteb
    sample = generator.sample(range(len(classes)), k=int(_SAMPLE_SHARE * len(classes)))
    if len(sample) < 2:
        raise InputError(f"{len(classes)} rows are too few for v_measure_sampled, of which it takes 4 %; use v_measure")
    vectors, labels = embeddings[sample], classes[sample]
    model = MiniBatchKMeans(len(np.unique(labels)), batch_size=_SAMPLED_BATCH, n_init=1, random_state=SEED)
    scores = []
    for _ in range(_DRAWS):
        rows = generator.choices(range(len(sample)), k=_DRAW_SIZE)
        with no_convergence_warnings():
            scores.append(v_measure_score(labels[rows], model.fit_predict(vectors[rows])))
    return np.array(scores)
