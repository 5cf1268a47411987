"""The dev score that selects the best checkpoint, and measures that can be logged with it."""

from collections.abc import Sequence
from dataclasses import replace

from layerwise.data import TaskRows
from layerwise.encoder import resolve_layer
from layerwise.errors import InputError
from layerwise.evaluate import TaskEvaluator
from layerwise.measures import scalar_measures
from layerwise.model import LayerModel
from layerwise.train.contrastive.settings import DevSettings
from layerwise.train.contrastive.terms import ExitsSettings

EXITS = "exits_mean"  # the metric when training exits: the mean of their scores


class DevScore:
    """Scores a model on the dev split of a task, or on all rows of a user's task without splits.

    When exits are trained, the mean of their scores selects the best step.
    """

    def __init__(self, settings: DevSettings, data: str | None, exits: ExitsSettings | None = None) -> None:
        self.exits = exits
        self.evaluator = TaskEvaluator(settings.task, data=data)
        self.settings = settings
        if self.evaluator.task.kind != "sts":
            raise InputError(f"[dev] task {settings.task!r} is not an STS task; checkpoints are picked by graded pairs")
        rows = self.evaluator.rows
        split = settings.split if rows.task.splits else "test"  # without splits all rows are used
        if split not in rows.splits:
            raise InputError(
                f"[dev] task {settings.task!r} has no {settings.split!r} rows but {', '.join(rows.splits)}; "
                f'choose another task, or task = "" with patience = 0 to keep the last step\'s weights'
            )
        self.evaluator.protocol = replace(self.evaluator.protocol, split=split)
        self.metric = self.evaluator.primary_metric if exits is None else EXITS
        self.name = f"{rows.task.name}, {settings.split if rows.task.splits else 'all rows'}"
        dev_rows = rows.pick(rows.splits[split])
        self._pairs = dev_rows if settings.measures else None

    def __call__(self, model: LayerModel) -> dict[str, float]:
        """Return metrics by name; correlations are from -1 to 1."""
        metrics = self.evaluator(model)
        if self.exits is not None:
            scores = [score for by_width in self.exit_scores(model).values() for score in by_width.values()]
            metrics = metrics | {EXITS: sum(scores) / len(scores)}
        return metrics if self._pairs is None else metrics | measures(model, self._pairs, self.settings.measures)

    def exit_scores(self, model: LayerModel) -> dict[str, dict[str, float]]:
        """Return the score of each exit by layer and width; correlations are from -1 to 1."""
        exits, width = self.exits, model.encoder.width
        layers = [] if exits is None else [resolve_layer(layer, model.encoder.depth) for layer in exits.layers]
        widths = [] if exits is None else [number or width for number in exits.widths]
        metric = self.evaluator.primary_metric
        return {
            str(layer): {str(number): self.evaluator(model.at_exit(layer, number))[metric] for number in widths}
            for layer in layers
        }


def measures(model: LayerModel, pairs: TaskRows, names: Sequence[str]) -> dict[str, float]:
    """Compute the named scalar measures of a model on pairs."""
    scalars = scalar_measures()
    return {name.replace("-", "_"): scalars[name](model, pairs) for name in names}
