"""Bridges: our models in `mteb.evaluate`, and any of our tasks as a sentence-transformers evaluator."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sentence_transformers.evaluation import SentenceEvaluator

from layerwise.data import Task, find_tasks, load_task
from layerwise.encoder import Array
from layerwise.evaluate.subjects import HostSubject, LayerSubject
from layerwise.extras import require
from layerwise.kinds import Protocol, problem_class
from layerwise.model import LayerModel


class MtebEncoder:
    """Adapts a `LayerModel` to mteb: `mteb.evaluate(MtebEncoder(model), tasks)`.

    Queries and documents get the model's prompts of these names, other texts its default prompt.

    Args:
        model: The model, or what `LayerModel.load` takes.
        name: owner/name, as mteb calls it.
    """

    def __init__(self, model: LayerModel | str, name: str = "") -> None:
        self.model = LayerModel.load(model) if isinstance(model, str) else model
        self._name = name or f"layerwise/{Path(self.model.encoder.name).name}"

    @cached_property
    def mteb_model_meta(self) -> Any:
        """The description of the model in mteb's results."""
        require("mteb", "MtebEncoder", "mteb")
        from mteb.models import ModelMeta
        from mteb.models.model_meta import ScoringFunction

        known = {
            "name": self._name,
            "revision": self.revision,
            "max_tokens": self.model.encoder.max_length,
            "embed_dim": self.model.width,
            "similarity_fn_name": ScoringFunction(self.model.similarity_fn_name),
            "framework": ["PyTorch"],
        }
        return ModelMeta.create_empty(overwrites=known)

    @cached_property
    def revision(self) -> str:
        """A digest of the model and its mix, as mteb reuses results of the same revision."""
        return f"{self.model.digest()[:12]} {self.model.mix}"

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,  # noqa: ARG002 - mteb's contract
        hf_split: str,  # noqa: ARG002
        hf_subset: str,  # noqa: ARG002
        prompt_type: Any = None,
        **options: Any,
    ) -> Array:
        """Batches with the key "text" to embeddings (texts, width)."""
        texts = [text for batch in inputs for text in batch["text"]]
        name = getattr(prompt_type, "value", prompt_type)
        embeddings: Array = self.model.encode(
            texts,
            prompt_name=name if name in self.model.prompts else None,
            show_progress_bar=bool(options.get("show_progress_bar")),
        )
        return embeddings

    def similarity(self, left: Any, right: Any) -> Any:
        """Every embedding of `left` against every one of `right`."""
        return self.model.similarity(left, right)

    def similarity_pairwise(self, left: Any, right: Any) -> Any:
        """Row by row."""
        return self.model.similarity_pairwise(left, right)


class TaskEvaluator(SentenceEvaluator):  # type: ignore[misc]
    """Any task as an evaluator for sentence-transformers' trainer: `TaskEvaluator("stsb", split="dev")`.

    Args:
        task: A task or its name.
        protocol: How it is scored; by default SentEval's.
        split: Of STS: "dev" while training; by default the protocol's, "test".
        data: The data folder, as for `evaluate`.
        name: The prefix of the metrics' names; by default the task's name.
    """

    def __init__(
        self,
        task: Task | str,
        *,
        protocol: Protocol | None = None,
        split: str | None = None,
        data: str | None = None,
        name: str = "",
    ) -> None:
        super().__init__()
        self.task = find_tasks([task])[0] if isinstance(task, str) else task
        protocol = protocol or Protocol(seeds=(1111,))
        self.protocol = replace(protocol, split=split) if split else protocol
        self.name = name or self.task.name
        self.rows = load_task(self.task, data)
        self.greater_is_better = True
        self.primary_metric = f"{self.name}_{problem_class(self.task).headline(self.task, self.protocol)}"

    @property
    def description(self) -> str:
        """For the trainer's log and the model card."""
        return f"{self.task.name} ({self.task.kind})"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Score a SentenceTransformer or a `LayerModel`: metric -> figure, as shares (correlations from -1 to 1).

        As in sentence-transformers' evaluators, a correlation of constant similarities is NaN.
        """
        subject = LayerSubject(model, cache=False) if isinstance(model, LayerModel) else HostSubject(model)
        outcome = next(iter(subject.outcomes(self.rows, self.protocol, subject.variants)))
        figures = {name: value / (100 if _is_share(name) else 1) for name, value in outcome.figures.items()}
        metrics = {f"{self.name}_{name}": float(value) for name, value in figures.items()}
        if output_path:
            _append(Path(output_path) / f"{self.name}_results.csv", {"epoch": epoch, "steps": steps, **metrics})
        if hasattr(model, "model_card_data"):
            self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics


def _is_share(metric: str) -> bool:
    """Whether a figure is × 100; times and sizes are not."""
    return not metric.endswith(("ms", "mb"))


def _append(path: Path, row: Mapping[str, Any]) -> None:
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(row)
        writer.writerow(row.values())
