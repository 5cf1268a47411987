"""The dev score that picks the best checkpoint, and the measures that can be logged with it."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from layerwise.analysis.geometry import alignment, uniformity
from layerwise.analysis.smoothing import layer_similarity
from layerwise.data.task_rows import TaskRows
from layerwise.errors import InputError
from layerwise.evaluate.bridges import TaskEvaluator
from layerwise.measures.smoothing import token_similarities
from layerwise.model import LayerModel
from layerwise.train.contrastive.settings import DevSettings

SENTENCES = 512  # of the dev set, for measures
_PARAPHRASE = 4.0 / 5.0  # of the highest score: pairs that mean the same, for alignment


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
        self._pairs = _pairs(rows, split) if settings.measures else None

    def __call__(self, model: LayerModel) -> dict[str, float]:
        """Metrics by name; correlations from -1 to 1."""
        metrics = self.evaluator(model)
        return metrics if self._pairs is None else metrics | measures(model, *self._pairs, self.settings.measures)


def measures(
    model: LayerModel, left: Sequence[str], right: Sequence[str], same: Sequence[bool], names: Sequence[str]
) -> dict[str, float]:
    """The named measures of a model on pairs; `same` marks those that mean the same."""
    texts = list(dict.fromkeys([*left, *right]))[:SENTENCES]
    values: dict[str, float] = {}
    if "token-similarity" in names:
        values["token_similarity"] = float(token_similarities(model.encoder, texts)[:, -1].nanmean())
    if "layer-similarity" in names:
        views = torch.from_numpy(model.encoder.encode_layers(texts, model.mix.poolings[0]))
        values["layer_similarity"] = float(layer_similarity(views)[:, -1].mean())
    if "uniformity" in names:
        values["uniformity"] = float(uniformity(model.encode(texts, convert_to_tensor=True)))
    if "alignment" in names:
        pairs = [(a, b) for a, b, is_same in zip(left, right, same, strict=True) if is_same][:SENTENCES]
        if pairs:
            sides = [model.encode([pair[side] for pair in pairs], convert_to_tensor=True) for side in (0, 1)]
            values["alignment"] = float(alignment(*sides))
    return values


def _pairs(rows: TaskRows, split: str) -> tuple[list[str], list[str], list[bool]]:
    picked = rows.pick(rows.splits[split])
    top = max(picked.labels)
    return picked.left, picked.right, [score >= _PARAPHRASE * top for score in picked.labels]
