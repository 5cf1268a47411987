"""The dev score that picks the best checkpoint, and the measures that can be logged with it."""

from collections.abc import Sequence
from dataclasses import replace

from layerwise.data import TaskRows
from layerwise.errors import InputError
from layerwise.evaluate import TaskEvaluator
from layerwise.measures import scalar_measures
from layerwise.model import LayerModel
from layerwise.train.contrastive.settings import DevSettings


class DevScore:
    """Scores a model by the dev split of a task, or by all rows of a user's task that has no splits."""

    def __init__(self, settings: DevSettings, data: str | None) -> None:
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
        self.metric = self.evaluator.primary_metric
        self.name = f"{rows.task.name}, {settings.split if rows.task.splits else 'all rows'}"
        picked = rows.pick(rows.splits[split])
        self._pairs = picked if settings.measures else None

    def __call__(self, model: LayerModel) -> dict[str, float]:
        """Metrics by name; correlations from -1 to 1."""
        metrics = self.evaluator(model)
        return metrics if self._pairs is None else metrics | measures(model, self._pairs, self.settings.measures)


def measures(model: LayerModel, pairs: TaskRows, names: Sequence[str]) -> dict[str, float]:
    """The named scalar measures of a model on pairs."""
    scalars = scalar_measures()
    return {name.replace("-", "_"): scalars[name](model, pairs) for name in names}
