"""The dev score that picks the best checkpoint, and the measures that can be logged beside it."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from layerwise.analysis.geometry import alignment, uniformity
from layerwise.analysis.smoothing import layer_similarity
from layerwise.data.task_rows import TaskRows
from layerwise.errors import InputError
from layerwise.evaluate import TaskEvaluator
from layerwise.measures.smoothing import token_similarities
from layerwise.model.layer_model import LayerModel
from layerwise.train.settings import DevSettings

SENTENCES = 512  # of the dev set, on which measures are taken
_ALIKE = 4.0 / 5.0  # of the highest score: pairs that mean the same, for alignment


class DevScore:
    """Scores a model by the dev split of a task, or by all rows of a user's task that has no splits."""

    def __init__(self, settings: DevSettings, data: str | None) -> None:
        self.evaluator = TaskEvaluator(settings.task, data=data)
        self.settings = settings
        if self.evaluator.task.kind != "sts":
            raise InputError(f"[dev] task {settings.task!r} is no STS task; checkpoints are picked by graded pairs")
        rows = self.evaluator.rows
        split = settings.split if rows.task.splits else "test"  # without splits all rows choose
        if split not in rows.splits:
            raise InputError(
                f"[dev] task {settings.task!r} has no {settings.split!r} rows but {', '.join(rows.splits)}; "
                f'name a task that has, or task = "" with patience = 0 to keep the last step\'s weights'
            )
        self.evaluator.protocol = replace(self.evaluator.protocol, split=split)
        self.metric = self.evaluator.primary_metric
        self.name = f"{rows.task.name}, {settings.split if rows.task.splits else 'all rows'}"
        self._pairs = _pairs(rows, split) if settings.measures else None

    def __call__(self, model: LayerModel) -> dict[str, float]:
        """metric -> figure; correlations from -1 to 1."""
        found = self.evaluator(model)
        return found if self._pairs is None else found | measures(model, *self._pairs, self.settings.measures)


def measures(
    model: LayerModel, left: Sequence[str], right: Sequence[str], alike: Sequence[bool], names: Sequence[str]
) -> dict[str, float]:
    """The named measures of a model on some pairs; `alike` marks those that mean the same."""
    texts = list(dict.fromkeys([*left, *right]))[:SENTENCES]
    found: dict[str, float] = {}
    if "token-similarity" in names:
        found["token_similarity"] = float(token_similarities(model.encoder, texts)[:, -1].nanmean())
    if "layer-similarity" in names:
        views = torch.from_numpy(model.encoder.encode_layers(texts, model.mix.poolings[0]))
        found["layer_similarity"] = float(layer_similarity(views)[:, -1].mean())
    if "uniformity" in names:
        found["uniformity"] = float(uniformity(model.encode(texts, convert_to_tensor=True)))
    if "alignment" in names:
        pairs = [(a, b) for a, b, same in zip(left, right, alike, strict=True) if same][:SENTENCES]
        if pairs:
            sides = [model.encode([pair[side] for pair in pairs], convert_to_tensor=True) for side in (0, 1)]
            found["alignment"] = float(alignment(*sides))
    return found


def _pairs(rows: TaskRows, split: str) -> tuple[list[str], list[str], list[bool]]:
    picked = rows.pick(rows.splits[split])
    top = max(picked.labels)
    return picked.left, picked.right, [score >= _ALIKE * top for score in picked.labels]
