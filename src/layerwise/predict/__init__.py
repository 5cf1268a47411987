"""Predicting with a trained multitask model: its tasks' heads, texts or files in, labels or numbers out.

`Predictor.load(folder).predict(task, texts)`; a `TaskSetup` is a task's declaration with its objective.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.predict.files import FilePredictions as FilePredictions
    from layerwise.predict.files import checked_writer as checked_writer
    from layerwise.predict.files import predict_file as predict_file
    from layerwise.predict.heads import TaskHead as TaskHead
    from layerwise.predict.heads import task_head as task_head
    from layerwise.predict.objective import TaskObjective as TaskObjective
    from layerwise.predict.objective import TaskSetup as TaskSetup
    from layerwise.predict.predictor import Predictions as Predictions
    from layerwise.predict.predictor import Predictor as Predictor
    from layerwise.predict.predictor import predicted_classes as predicted_classes
    from layerwise.predict.predictor import task_tokenizers as task_tokenizers

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        **dict.fromkeys(("TaskHead", "task_head"), ".heads"),
        **dict.fromkeys(("TaskObjective", "TaskSetup"), ".objective"),
        **dict.fromkeys(("FilePredictions", "checked_writer", "predict_file"), ".files"),
        **dict.fromkeys(("Predictions", "Predictor", "predicted_classes", "task_tokenizers"), ".predictor"),
    },
)
