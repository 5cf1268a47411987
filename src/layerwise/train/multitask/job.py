"""Multitask training as a job of the loop: tasks to batches, an encoder to a student, the student to a predictor."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, cast

from layerwise.data import Task
from layerwise.encoder import LayerEncoder
from layerwise.evaluate import Evaluation
from layerwise.files import plain_json
from layerwise.objectives import rank, world_size
from layerwise.postprocess import ENCODER, FittedOn
from layerwise.predict import Predictor, task_tokenizers
from layerwise.train.loop.graphs import GraphedEncode, use_graphs
from layerwise.train.loop.job import Job, Training
from layerwise.train.loop.scoring import score_model, tasks_to_score
from layerwise.train.loop.summary import Result, spread, spreads
from layerwise.train.multitask.baselines import Baselines, score_baselines
from layerwise.train.multitask.batches import MultitaskBatches
from layerwise.train.multitask.dev import OVERALL, TaskScorer
from layerwise.train.multitask.rows import TrainingTask, load_training_task
from layerwise.train.multitask.schedule import steps
from layerwise.train.multitask.settings import MULTITASK_RECIPES, MultitaskRecipe
from layerwise.train.multitask.student import MultitaskStudent, build_student, second_view
from layerwise.train.multitask.trainer import MultitaskTrainer
from layerwise.train.recipes.format import RecipeFormat

log = logging.getLogger(__name__)
_ENOUGH_STEPS, _MOST_EPOCHS = 500, 30  # for epochs = "auto"
_FEW_STEPS = 100


class MultitaskJob(Job[MultitaskRecipe, MultitaskStudent, Predictor]):
    """A training on several tasks. Tasks of weight 0 are neither trained nor scored nor saved.

    >>> job = MultitaskJob(load_multitask_recipe("cs224n"), encoder="my-encoder", data="data")  # doctest: +SKIP
    >>> train(job, "run").model.predict("sst", ["A good film."]).labels  # doctest: +SKIP

    Args:
        recipe: The settings.
        encoder: A folder or hub name instead of the recipe's; an encoder object is trained in place.
        tasks: The recipe's trained tasks with their rows, if they are read already.
        data: The data folder, for the files of tasks and for test tasks.
    """

    formats: ClassVar[RecipeFormat[MultitaskRecipe]] = MULTITASK_RECIPES

    def __init__(
        self,
        recipe: MultitaskRecipe,
        *,
        encoder: LayerEncoder | str | None = None,
        tasks: Sequence[TrainingTask] | None = None,
        data: str | None = None,
    ) -> None:
        super().__init__(recipe, encoder=encoder)
        self.data = data
        self.tasks: tuple[TrainingTask, ...] = tuple(tasks or ())
        self.tests: Sequence[Task] = ()
        self._baselines: Baselines = {}

    def read_data(self) -> None:
        """Read the rows of every trained task."""
        self.tasks = self.tasks or tuple(load_training_task(setup, self.data) for setup in self.recipe.trained)

    def prepare_test(self) -> None:
        """Find the test tasks."""
        self.tests = tasks_to_score(self.recipe.dev.test, self.data) if self.recipe.dev.test else ()

    @property
    def digest(self) -> str:
        """The digest of all texts, labels and classes in order."""
        digest = sha256()
        for task in self.tasks:
            digest.update(repr((task.name, task.labels, sorted(task.parts))).encode())
            for _, rows in sorted(task.parts.items()):
                digest.update(repr(rows.columns).encode())
                digest.update(rows.targets.tobytes())
        return digest.hexdigest()

    @property
    def metric(self) -> str:
        """The overall score of all tasks."""
        return OVERALL

    @property
    def automatic_epochs(self) -> float:
        """One, or for small data as many as make 500 steps."""
        return min(_MOST_EPOCHS, max(1, -(-_ENOUGH_STEPS // self._steps_of_epoch)))

    def build(self, encoder: LayerEncoder, *, seed: int) -> Training[MultitaskStudent]:
        """Build student, batches and dev scorer."""
        recipe = self.recipe
        student = build_student(recipe, self.tasks, encoder, seed=seed)
        if rank() == 0:
            sizes = ", ".join(f"{task.name} ({len(task.parts['train']):,} rows)" for task in self.tasks)
            log.info("training on %s, device %s", sizes, encoder.device)
            self._warn_of_few_steps()
            self._baselines = self._baselines or score_baselines(encoder, self.tasks)
        bf16 = recipe.train.precision == "bf16" and encoder.device.type != "cpu"
        predictor = student.to_predictor(self.tasks, remember=True)
        return Training(
            student=student,
            batches=self._batches(encoder, seed),
            scorer=TaskScorer(predictor, self.tasks, limit=recipe.dev.limit, bf16=bf16),
            trainer=partial(
                MultitaskTrainer,
                learned_rate=recipe.mixing.learned_rate,
                chunk=recipe.train.chunk,
                graphs=self._graphs(student),
            ),
        )

    def data_facts(self, training: Training[MultitaskStudent]) -> dict[str, Any]:
        """Return rows, classes and weight of each task."""
        student = training.student
        weights = student.learned.weights if student.learned else tuple(student.weights.values())
        return {
            "tasks": {
                task.name: {
                    "rows": {role: len(rows) for role, rows in task.parts.items()},
                    "labels": list(task.labels),
                    "weight": weight,
                }
                for task, weight in zip(self.tasks, weights, strict=True)
            }
        }

    def score_facts(self, training: Training[MultitaskStudent], state: Any) -> dict[str, Any]:
        """Return scores and confusions on all dev and labelled test rows, and the best step."""
        self._warn_of_truncated(cast(MultitaskBatches, training.batches))
        reports = cast(TaskScorer, training.scorer).reports()
        facts = {role: report.facts() for role, report in reports.items()}
        facts["baselines"] = plain_json(self._baselines)
        if state.best_metric is not None:
            limit = self.recipe.dev.limit
            metric = f"overall, dev{f' (at most {limit} rows a task)' if limit else ''}"
            facts["best"] = {"metric": metric, "score": state.best_metric, "at_step": state.best_global_step}
        return facts

    def model(self, training: Training[MultitaskStudent], facts: Mapping[str, Any]) -> Predictor:
        """Return the predictor with the record of its training text."""
        trained = "pooler" if self.recipe.mixing.frozen_encoder else ENCODER
        fitted_on = tuple(
            FittedOn.of(
                [text for column in task.parts["train"].columns for text in column],
                source=f"{task.name} ({Path(task.setup.task.file).name}, train)",
                what=trained,
            )
            for task in self.tasks
        )
        return training.student.to_predictor(self.tasks, training=dict(facts), fitted_on=fitted_on)

    def evaluate(self, model: Predictor) -> Evaluation | None:
        """Score the embeddings on the test tasks."""
        return score_model(model.model, self.tests, self.data) if self.tests else None

    def save(self, model: Predictor, facts: Mapping[str, Any], folder: Path) -> None:
        """Save the model folder with the heads of its tasks."""
        replace(model, model=model.model.replaced(training=dict(facts))).save(folder, overwrite=True)

    def summary(self, results: Sequence[Result]) -> dict[str, Any]:
        """Summarise each score on dev and test rows, and on test tasks, that all seeds have."""
        roles = [role for role in ("dev", "test") if all(role in result for result in results)]
        tests = [key for key in ("scores", "averages") if all(key in result for result in results)]
        return {
            "seeds": [result["seed"] for result in results],
            **{role: spreads([result[role]["scores"] for result in results]) for role in roles},
            "baselines": results[0].get("baselines", {}),
            **{key: spreads([result[key] for result in results]) for key in tests},
            "seconds": spread([result["seconds"] for result in results]),
        }

    @property
    def _steps_of_epoch(self) -> int:
        sizes, batch = [len(task.parts["train"]) for task in self.tasks], self.recipe.train.batch_size * world_size()
        return steps(sizes, [batch] * len(sizes), self.recipe.mixing.iteration)

    def _warn_of_few_steps(self) -> None:
        count = self.recipe.train.steps or round(self.epochs * self._steps_of_epoch)
        if count < _FEW_STEPS:
            log.warning(
                "%d steps train little: leave [train] epochs out, which makes %d steps of small data, or set more "
                "epochs or a smaller batch_size", count, _ENOUGH_STEPS,
            )  # fmt: skip

    def _batches(self, encoder: LayerEncoder, seed: int) -> MultitaskBatches:
        lengths = {task.name: task.setup.objective.max_length for task in self.tasks}
        return MultitaskBatches(
            self.tasks,
            task_tokenizers(encoder.tokenizer, lengths),
            batch_size=self.recipe.train.batch_size,
            mixing=self.recipe.mixing,
            pad_id=int(encoder.tokenizer.pad_token_id or 0),
            seed=seed,
            rank=rank(),
            world=world_size(),
        )

    def _graphs(self, student: MultitaskStudent) -> GraphedEncode | None:
        """Create CUDA graphs of each task's pass; launching a pass is then cheap, so tasks do not share passes."""
        settings = self.recipe.train
        if not use_graphs(student, settings) or student.frozen_encoder:
            return None
        student.max_padding = 0.0
        rows = {task.name: settings.batch_size * len(task.parts["train"].columns) for task in self.tasks}
        rows |= {second_view(name): count for name, count in rows.items()}
        return GraphedEncode(student, rows=rows, bf16=settings.precision == "bf16")

    def _warn_of_truncated(self, batches: MultitaskBatches) -> None:
        shares = batches.truncated_shares()
        for task in self.tasks if rank() == 0 else ():
            if shares.get(task.name):
                log.warning(
                    "task %s: %.1f %% of its texts were longer than max_length = %d tokens, and were truncated",
                    task.name, 100 * shares[task.name], task.setup.objective.max_length,
                )  # fmt: skip
