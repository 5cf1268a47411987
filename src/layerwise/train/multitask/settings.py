"""The settings of multitask training: the tasks, how they are learned and mixed; a recipe is a TOML file of them.

A recipe has the tables [model], [mixing], [train] and [dev]. Its tasks are those of `tasks = ["tasks.toml", "sst5"]`
(task files beside it, or names of the catalogue) and its [[task]] tables. An [[objective]] table says how a task is
learned; a task without one is learned with the defaults, so that a plain task file is a recipe too.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from layerwise.data import Task, find_tasks, parse_tasks, repeated
from layerwise.errors import InputError
from layerwise.predict import TaskObjective, TaskSetup
from layerwise.registry import unknown
from layerwise.settings import Settings
from layerwise.train.loop.settings import (
    BaseModelSettings,
    BaseRecipe,
    EvalSchedule,
    Positive,
    absolute,
    absolute_task_file,
)
from layerwise.train.multitask.rows import check_splits
from layerwise.train.recipes.format import ListedTable, RecipeFormat, RecipeSource, Tables

Iteration = Literal["cycling", "padding", "truncating", "proportional", "temperature"]
Weights = Literal["equal", "inverse-size", "given", "learned"]
ITERATIONS: tuple[str, ...] = get_args(Iteration)
WEIGHTS: tuple[str, ...] = get_args(Weights)
_TASK_KEYS = ("task", "tasks", "defaults")


class MultitaskModel(BaseModelSettings):
    """Encoder, pooler and head; the default pooler is the best of those that were compared.

    Attributes:
        head: Applied after the pooler and before every task's head: "mlp" (linear and tanh), "linear", "none".
    """

    pooler: str = "last @ mean"
    head: Literal["none", "mlp", "linear"] = "none"


class MixingSettings(Settings):
    """How the tasks are trained together.

    Attributes:
        iteration: "cycling" (every step has a batch of each task, smaller ones start again), "padding" (smaller ones
            are padded with rows that have no loss), "truncating" (until the smallest is exhausted); one task a step:
            "proportional" (drawn by its size), "temperature" (by its size to the power of 1/temperature).
        temperature: 1 is proportional; higher values make the shares more equal.
        weights: Of the losses: "equal" (1 each), "inverse-size" (by 1/rows; their sum is the number of tasks), "given"
            (each objective's `weight`), "learned" (by uncertainty, Kendall et al. 2018).
        learned_rate: The learning rate of learned weights; the encoder's is too low for them.
        frozen_encoder: Train only pooler and heads.
    """

    label: ClassVar[str] = "[mixing]"
    iteration: Iteration = "cycling"
    temperature: Positive = 1.0
    weights: Weights = "equal"
    learned_rate: Positive = 0.02
    frozen_encoder: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.temperature != 1 and self.iteration != "temperature":
            raise InputError(
                f"temperature {self.temperature:g} has no effect with iteration = {self.iteration!r}; set "
                f'temperature = 1, or iteration = "temperature"'
            )
        return self


class MultitaskDev(EvalSchedule):
    """The evaluation during training, on the dev rows of every task, and after it; the best overall score picks a step.

    Attributes:
        every: Steps between evaluations.
        limit: Evaluate at most this many dev rows of a task, always the same ones; 0: all. The trained model is scored
            on all rows.
        test: Tasks or suites to score the trained model's embeddings on, such as ["sts"].
    """

    every: Annotated[int, Field(ge=1)] = 250
    limit: Annotated[int, Field(ge=0)] = 0
    test: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.limit == 1:
            raise InputError("limit is 1; expected 2 rows or more, or 0 for all of them")
        return self


class MultitaskRecipe(BaseRecipe):
    """A multitask training: tasks and their objectives, model, mixing, optimiser and evaluation.

    Attributes:
        tasks: The declarations of the tasks.
        objectives: How they are learned, in the order of the tasks; a task without one has the defaults.
        mixing: How the tasks are trained together.
    """

    model: MultitaskModel = MultitaskModel()
    mixing: MixingSettings = MixingSettings()
    tasks: tuple[Task, ...]
    objectives: tuple[TaskObjective, ...] = ()
    dev: MultitaskDev = MultitaskDev()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.tasks:
            raise InputError("no tasks; name task files, tasks = [...], or write [[task]] tables")
        names = [task.name for task in self.tasks]
        for key, listed in (("task", names), ("objective of task", [objective.task for objective in self.objectives])):
            if duplicate := repeated(listed):
                raise InputError(f"{key} {duplicate!r} comes twice; give it once")
        by_task = {objective.task: objective for objective in self.objectives}
        for task in by_task:
            if task not in names:
                raise InputError(f"[[objective]]: {unknown('task', task, names)}")
        objectives = tuple(by_task.get(name) or TaskObjective(task=name) for name in names)
        object.__setattr__(self, "objectives", objectives)  # frozen, but still under construction
        self._check_weights()
        self._check_trained()
        return self

    def _check_weights(self) -> None:
        for objective in self.objectives if self.mixing.weights != "given" else ():
            if objective.weight != 1:
                raise InputError(
                    f"objective of task {objective.task!r}: weight {objective.weight:g} has no effect with "
                    f'[mixing] weights = {self.mixing.weights!r}; set weights = "given", or weight = 1'
                )
        if not any(objective.weight for objective in self.objectives):
            raise InputError("every task has the weight 0, so nothing would be trained")

    def _check_trained(self) -> None:
        for setup in self.setups:
            check_splits(setup.task)
        for setup in self.trained:
            if self.mixing.frozen_encoder and setup.objective.contrast:
                raise InputError(
                    f"objective of task {setup.name!r}: contrast compares two dropout passes of the encoder, but "
                    f"[mixing] frozen_encoder = true turns its dropout off; set contrast = 0, or train the encoder"
                )

    @property
    def setups(self) -> tuple[TaskSetup, ...]:
        """All tasks with their objectives."""
        return tuple(map(TaskSetup, self.tasks, self.objectives))

    @property
    def trained(self) -> tuple[TaskSetup, ...]:
        """The tasks with a positive weight, with their objectives."""
        return tuple(setup for setup in self.setups if setup.objective.weight)

    def with_absolute_paths(self) -> Self:
        """Return the recipe with absolute paths of the encoder, the tasks' rows and task files."""
        tasks = tuple(task.replaced(file=absolute(task.file)) if task.suite == "own" else task for task in self.tasks)
        dev = self.dev.replaced(test=tuple(map(absolute_task_file, self.dev.test)))
        return super().with_absolute_paths().replaced(tasks=tasks, dev=dev)

    def only(self, names: Collection[str]) -> Self:
        """Return the recipe with only some of its tasks."""
        tasks = tuple(task for task in self.tasks if task.name in names)
        objectives = tuple(objective for objective in self.objectives if objective.task in names)
        return self.replaced(tasks=tasks, objectives=objectives)

    def facts(self) -> dict[str, Any]:
        """All settings, for JSON and the model card."""
        facts = super().facts()
        facts["tasks"] = [task.model_dump(exclude_none=True) for task in self.tasks]
        facts["objectives"] = [objective.model_dump(exclude_none=True) for objective in self.objectives]
        return facts


class MultitaskFormat(RecipeFormat[MultitaskRecipe]):
    """Recipes with tasks."""

    def parse(self, source: RecipeSource, *, data: str | None = None) -> MultitaskRecipe:
        """Parse a recipe; task files and their rows may be in the recipe's folder or the data folder."""
        rest = {key: value for key, value in source.tables.items() if key not in _TASK_KEYS}
        return self.settings(rest, where=source.name, tasks=_tasks(source, data))


def _tasks(source: RecipeSource, data: str | None) -> tuple[Task, ...]:
    names = source.tables.get("tasks", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f'{source.name}: tasks is {names!r}; expected a list of task files and names, ["tasks.toml", "sst5"]'
        )
    tasks = find_tasks([_find_task_file(name, source.folders) for name in names], data=data)
    if "task" in source.tables:
        tasks += parse_tasks(source.tables, source.name, folders=source.folders, data=data)
    return tuple(tasks)


def _find_task_file(name: str, folders: Sequence[Path]) -> str:
    """Return the path of a task file in the first of these folders that has it; other names are unchanged."""
    paths = [folder / Path(name).expanduser() for folder in folders if name.endswith(".toml")]
    return next((str(path) for path in paths if path.is_file()), name)


MULTITASK_RECIPES = MultitaskFormat(
    recipe=MultitaskRecipe,
    folder="multitask",
    tables=("model", "mixing", "train", "dev"),
    listed={"task": ListedTable("name"), "objective": ListedTable("task", grows=True)},
)


def load_multitask_recipe(
    name_or_file: str | Path, sets: Sequence[str] = (), *, data: str | None = None
) -> MultitaskRecipe:
    """Load a recipe by name or file, with overrides such as "objective.sst.weight=0".

    The file of a task may be in the data folder, in the recipe's folder, or at its path.

    >>> load_multitask_recipe("cs224n", ["train.batch_size=16"]).train.batch_size
    16
    """
    return MULTITASK_RECIPES.load(name_or_file, sets, data=data)


def parse_multitask_recipe(tables: Tables, *, where: str = "recipe") -> MultitaskRecipe:
    """Build a recipe from the tables of a TOML file; errors start with `where`."""
    return MULTITASK_RECIPES.parse(RecipeSource(tables, where))


def multitask_toml(recipe: MultitaskRecipe) -> str:
    """Return the recipe as TOML, with all settings including defaults."""
    return MULTITASK_RECIPES.toml(recipe)
