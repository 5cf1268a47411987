"""The report's part on tasks: what every layer is worth on every task, from an evaluation that was written before."""

import os

import numpy as np

from layerwise.errors import InputError
from layerwise.evaluate import Evaluation, Matrix
from layerwise.model import LayerModel
from layerwise.plots import inline_svg
from layerwise.report.page import Figure, Section


def read_matrix(path: str | os.PathLike[str]) -> tuple[Evaluation, Matrix]:
    """Load a result of `layerwise evaluate MODEL --layers each -o FILE.json`."""
    evaluation = Evaluation.load(path)
    if len(evaluation.runs) < 2 or any(len(run.layers) != 1 for run in evaluation.runs):
        raise InputError(
            f"{path}: has no single layers; write it by layerwise evaluate MODEL --layers each -o FILE.json"
        )
    return evaluation, Matrix.of(evaluation.runs)


def check_same_model(evaluation: Evaluation, model: LayerModel, path: str | os.PathLike[str]) -> None:
    """Raise for an evaluation of other weights."""
    weights, _ = model.encoder.fingerprint()
    if evaluation.protocol.get("model_hash") != weights:
        raise InputError(f"{path}: is of {evaluation.model}, whose weights are others; evaluate this model")


def tasks_section(matrix: Matrix) -> Section:
    """The heat map, and how often the last layer is the best."""
    best = [run for row in range(len(matrix.tasks)) if (run := matrix.best(row)) is not None]
    last = max(run.layers[0] for run in matrix.runs)
    at_last = sum(run.layers[0] == last for run in best)
    lost = [
        np.nanmax(scores) - max(score for run, score in zip(matrix.runs, scores, strict=True) if run.layers[0] == last)
        for scores in matrix.scores
        if not np.isnan(scores).all()
    ]
    figure = Figure(
        inline_svg(matrix.draw(), "tasks-0"),
        "Every layer on every task",
        "A row is a task, a column a layer; each score is a share of the best view's of its task, which has a dot.",
        f"The last layer is the best of {at_last} of {len(best)} tasks; it is {np.mean(lost):.1f} points below the "
        f"best single layer on average. The best of many layers is partly chance; `layerwise search` tells which.",
        wide=True,
    )
    return Section("tasks", "Which layers are good for which task", (figure,))
