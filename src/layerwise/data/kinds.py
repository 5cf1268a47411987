"""The kinds of tasks, each declared once: what a row holds, how it is scored, what is resampled, what can be trained.

Every command reads these declarations. They need no torch: the class of a kind's problem is imported on first use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from layerwise.metrics import (
    Redraw,
    redraw_average_precision,
    redraw_mean,
    redraw_pearson,
    redraw_spearman,
    redraw_v_measure,
    without_depth,
)
from layerwise.registry import Registry


@dataclass(frozen=True)
class Kind:
    """The declaration of a kind of task.

    Args:
        name: Its name in task files.
        columns: What a row holds ("left", "right", "label") -> its column, unless a task names another.
        required: The places that must have a column.
        metrics: The headline figures to choose from, the first by default -> how each is computed on resamples of the
            rows; None if it cannot be.
        unit: What is split and resampled.
        problem: The class that scores its vectors, a `layerwise.kinds.Problem`, as "module:Class".
        roles: The roles of its texts, which have prompts of their own.
        heads: The heads that can be trained on it, the first by default; none if it cannot be trained.
        losses: The losses that they can be trained with.
        classes: Whether labels are classes; otherwise they are numbers.
        binary: Whether labels are 0 and 1.
        graded: Whether labels are grades on a scale.
        drawn_from_train: Whether its problem needs the train rows, of which it draws some.
    """

    name: str
    columns: Mapping[str, str]
    required: tuple[str, ...]
    metrics: Mapping[str, Redraw | None]
    unit: str
    problem: str
    roles: tuple[str, ...] = ("",)
    heads: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    classes: bool = False
    binary: bool = False
    graded: bool = False
    drawn_from_train: bool = False

    @property
    def problem_class(self) -> Any:
        """The class of `problem`, imported on first use."""
        module, _, name = self.problem.partition(":")
        return getattr(import_module(module), name)

    def redraw(self, metric: str) -> Redraw | None:
        """The function that computes a metric on resamples, whatever its cut-off; None if there is none."""
        known = {without_depth(name): redraw for name, redraw in self.metrics.items()}
        return known.get(without_depth(metric))


KINDS: Registry[Kind] = Registry("kind")
_PAIR = {"left": "sentence1", "right": "sentence2"}
_CLASSES = {"left": "text", "label": "label"}
_QUERY = ("query", "document")

for _kind in (
    Kind(
        "sts",
        columns=_PAIR | {"label": "score"},
        required=("left", "right"),
        metrics={"spearman": redraw_spearman, "pearson": redraw_pearson},
        unit="pairs",
        problem="layerwise.kinds.pairs:GradedPairs",
        heads=("cosine", "linear", "mlp"),
        losses=("mse",),
        graded=True,
    ),
    Kind(
        "classification",
        columns=_CLASSES,
        required=("left", "label"),
        metrics={"accuracy": redraw_mean, "f1": None},
        unit="rows",
        problem="layerwise.kinds.classification:Classification",
        heads=("linear", "mlp"),
        losses=("cross-entropy", "binary"),
        classes=True,
    ),
    Kind(
        "retrieval",
        columns={"left": "query", "right": "passage"},
        required=("left", "right"),
        metrics=dict.fromkeys(("mrr@10", "ndcg@10", "recall@10"), redraw_mean),
        unit="queries",
        problem="layerwise.kinds.retrieval:Retrieval",
        roles=_QUERY,
    ),
    Kind(
        "reranking",
        columns={"left": "query", "right": "text", "label": "label"},
        required=("left", "right", "label"),
        metrics=dict.fromkeys(("map", "mrr", "ndcg@10"), redraw_mean),
        unit="queries",
        problem="layerwise.kinds.reranking:Reranking",
        roles=_QUERY,
    ),
    Kind(
        "clustering",
        columns=_CLASSES,
        required=("left", "label"),
        metrics={"v_measure": redraw_v_measure, "v_measure_sampled": None},
        unit="rows",
        problem="layerwise.kinds.clustering:Clustering",
        classes=True,
    ),
    Kind(
        "fewshot",
        columns=_CLASSES,
        required=("left", "label"),
        metrics={"accuracy": redraw_mean, "f1_macro": None},
        unit="rows",
        problem="layerwise.kinds.fewshot:FewShot",
        classes=True,
        drawn_from_train=True,
    ),
    Kind(
        "pair-classification",
        columns=_PAIR | {"label": "label"},
        required=("left", "right", "label"),
        metrics=dict.fromkeys(
            ("max_ap", "cosine_ap", "dot_ap", "euclidean_ap", "manhattan_ap"), redraw_average_precision
        ),
        unit="pairs",
        problem="layerwise.kinds.pair_classification:PairClassification",
        binary=True,
    ),
    Kind(
        "bitext",
        columns=_PAIR,
        required=("left", "right"),
        metrics=dict.fromkeys(("f1", "accuracy"), redraw_mean),
        unit="pairs",
        problem="layerwise.kinds.bitext:Bitext",
    ),
):
    KINDS.register(_kind.name)(_kind)


def redraw_of(kind: str, metric: str) -> Redraw | None:
    """The function that computes a headline figure on resamples; None if there is none.

    Of a result without a kind, made by hand, the metric says it.
    """
    kinds = [KINDS[name] for name in ([kind] if kind in KINDS else KINDS)]
    return next((redraw for known in kinds if (redraw := known.redraw(metric))), None)
