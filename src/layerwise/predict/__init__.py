"""Predicting with a trained multitask model: its tasks' heads, texts or files in, labels or numbers out.

`Predictor.load(folder).predict(task, texts)`; a `TaskSetup` is a task's declaration with its objective.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.predict.files import FilePredictions, checked_writer, predict_file
    from layerwise.predict.heads import TaskHead, task_head
    from layerwise.predict.objective import TaskObjective, TaskSetup
    from layerwise.predict.predictor import Predictions, Predictor, predicted_classes, task_tokenizers

__getattr__, __dir__, __all__ = door(__name__, __file__)
