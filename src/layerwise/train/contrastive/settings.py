"""The settings of contrastive training: text, objectives and dev pairs; a recipe is a TOML file of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from layerwise.errors import InputError
from layerwise.mixes import parse_mix
from layerwise.settings import Settings
from layerwise.train.contrastive.blocks import check_blocks
from layerwise.train.contrastive.prompted import second_prompt_of
from layerwise.train.contrastive.terms import TERMS, ExitsSettings, FrozenSettings, TermSettings
from layerwise.train.loop.settings import (
    BaseModelSettings,
    BaseRecipe,
    EvalSchedule,
    absolute,
    absolute_task_file,
    check_trainable,
)
from layerwise.train.recipes.format import ListedTable, RecipeFormat, RecipeSource, Tables


class DataSettings(Settings):
    """The text to train on.

    Attributes:
        files: Files or `hub:owner/name[:split]`, read one after the other; a name that is not a path is looked up in
            the data folder.
        columns: One: every sentence is its own positive (by dropout); two: pairs; three: pairs and a hard negative.
        stack: Stack the columns into one column of sentences.
        limit: Only the first rows.
        max_length: Texts are truncated to this many tokens in training.
        stream: Never hold the text in memory; needs `steps` in [train].
        keep_duplicates: Do not drop repeated rows.
        clauses: After each sentence, its clauses (4 to 20 words between marks) are rows of the text too; of one column.
        bucket: Batch texts of similar length together.
        repetition: The second view of a sentence has up to this share of its words twice (ESimCSE: 0.32); 0: it is the
            same text, with other dropout.
    """

    label: ClassVar[str] = "[data]"
    files: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("text",)
    stack: bool = False
    limit: Annotated[int, Field(ge=2)] | None = None
    max_length: Annotated[int, Field(ge=3)] = 32
    stream: bool = False
    keep_duplicates: bool = False
    clauses: bool = False
    bucket: bool = True
    repetition: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 1 <= len(self.columns) <= 3 and not self.stack:
            raise InputError(f"columns has {len(self.columns)} names; expected 1 to 3")
        if self.stack and self.stream:
            raise InputError("stack and stream cannot be combined; write the sentences into one column")
        if self.clauses and self.width > 1:
            raise InputError(f"clauses are of sentences in one column, but columns has {len(self.columns)}")
        return self

    @property
    def width(self) -> int:
        """How many columns a row has."""
        return 1 if self.stack else len(self.columns)


class ModelSettings(BaseModelSettings):
    """Encoder, pooler and head, and what of them is in the trained model.

    Attributes:
        keep_head: Keep the head in the trained model.
        inference: The mix of the trained model where it is not the pooler ("train only"), such as "last @ cls".
        blocks: Which blocks of the encoder are trained and saved, numbered from 1: "1,4,7,10"; a number of them, at
            even distances; "best 6": found by a search against the teacher's similarities; empty: all.
        attention: "bidirectional" lets the tokens of a causal decoder see the whole text, in the saved model too.
        lora: The rank of LoRA on all linear layers, merged into the weights of the trained model; 0: all weights are
            trained.
        lora_alpha: LoRA's scale is alpha / rank.
        lora_dropout: The dropout rate before LoRA.
        denoise: Take the views of the prompt alone, beside a text of that length, away from those of the texts
            (PromptBERT); in training only.
        second_prompt: The second view of a sentence stands in this prompt, a name or a template, instead of the
            pooler's.
    """

    keep_head: bool = False
    inference: str = ""
    blocks: int | str = ""
    attention: Literal["", "bidirectional"] = ""
    lora: Annotated[int, Field(ge=0)] = 0
    lora_alpha: Annotated[int, Field(ge=1)] = 32
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    denoise: bool = False
    second_prompt: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.blocks != "":
            check_blocks(self.blocks)
        if self.inference:
            check_trainable(self.inference)
            if parse_mix(self.inference).is_learned:
                raise InputError(
                    "inference must be a mix without parameters; to keep an attention pooler, leave it out"
                )
        if self.second_prompt:
            second_prompt_of(self.second_prompt, parse_mix(self.pooler))
        if self.keep_head and (self.inference or self.head in ("none", "mlp-bn")):
            raise InputError("keep_head needs head mlp, linear or identity, and no other mix for inference")
        return self


class DevSettings(EvalSchedule):
    """The evaluation during training and after it.

    Attributes:
        task: The task whose dev split picks the best checkpoint; empty: the last step's weights are kept.
        split: Of that task.
        test: Tasks or suites to score the trained model on, such as ["sts"].
        measures: Logged at every evaluation: "token-similarity" (TokSim), "layer-similarity" (SetSim), "alignment",
            "uniformity".
    """

    task: str = "stsb"
    split: str = "dev"
    test: tuple[str, ...] = ()
    measures: tuple[Literal["token-similarity", "layer-similarity", "alignment", "uniformity"], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.split == "test":
            raise InputError('split = "test": checkpoints are never picked on test data; give "dev" or "train"')
        if self.measures and not self.task:
            raise InputError("measures are taken on the dev pairs; give a task")
        if self.patience and not self.task:
            raise InputError("patience needs dev pairs; give a task, or set patience = 0")
        return self


class Recipe(BaseRecipe):
    """A contrastive training: text, model, objectives, optimiser and dev pairs."""

    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    objectives: tuple[SerializeAsAny[TermSettings], ...]
    dev: DevSettings = DevSettings()

    @field_validator("objectives", mode="before")
    @classmethod
    def _by_name(cls, objectives: Any) -> Any:
        """Convert tables to objective settings; weight 0 removes one, so that --set can do it."""
        if not isinstance(objectives, tuple):
            return objectives
        terms = [_term(objective) if isinstance(objective, Mapping) else objective for objective in objectives]
        return tuple(term for term in terms if term is not None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.objectives:
            raise InputError("no [[objective]]; add one or more, each with a name and its settings")
        names = [term.name for term in self.objectives]
        if len(set(names)) < len(names):
            raise InputError("an [[objective]] is given twice; give it once, with one weight")
        if len({term.frozen for term in self.objectives if term.frozen}) > 1:
            raise InputError("the objectives ask for different views of the frozen copy; give them the same")
        if self.train.chunk and any(term.reads_tokens for term in self.objectives):
            reading = " and ".join(term.name for term in self.objectives if term.reads_tokens)
            raise InputError(f"[train] chunk: gradient caching cannot be combined with the objective {reading}")
        if self.data.stream and self.train.steps is None:
            raise InputError("[data] stream: the number of steps of an epoch is unknown; give steps under [train]")
        self._check_columns()
        self._check_rotation()
        return self

    def _check_rotation(self) -> None:
        dropped_head = self.model.head != "none" and not self.model.keep_head
        if self.frozen is not None and self.frozen.rotated and (self.model.inference or dropped_head):
            raise InputError(
                "objective 'distil': projection = \"rotation\" is of the embeddings that the trained model gives; "
                'leave inference out, and give head = "none" or keep_head = true'
            )

    def _check_columns(self) -> None:
        width = self.data.width
        needed = max(term.columns for term in self.objectives)
        if self.frozen is not None and self.frozen.column >= width:
            raise InputError(f"objective column = {self.frozen.column}, but [data] has {width} column(s), from 0")
        if width > 1 and needed > width:
            raise InputError(f"an objective needs {needed} columns, but [data] has {width}")
        read = {*range(self.student_columns), *([self.frozen.column] if self.frozen else [])}
        unread = [name for number, name in enumerate(self.data.columns[:width]) if number not in read]
        if unread:
            raise InputError(f"no objective reads [data] column {', '.join(unread)}; remove it, or add info-nce")
        for term in self.objectives:
            term.check_columns(width)
        if self.data.repetition and self.copies != 2:
            raise InputError(
                "[data] repetition is of the second view of a sentence; give one column, and an objective of two views"
            )
        if self.model.second_prompt and self.copies != 2:
            raise InputError(
                "[model] second_prompt is of the second view of a sentence; give one column, and an objective of two "
                "views"
            )

    def with_absolute_paths(self) -> Self:
        """Return the recipe with absolute paths of the encoder, the text and task files."""
        test = tuple(map(absolute_task_file, self.dev.test))
        return (
            super()
            .with_absolute_paths()
            .replaced(
                data=self.data.replaced(files=tuple(map(absolute, self.data.files))),
                objectives=tuple(term.with_absolute_paths() for term in self.objectives),
                dev=self.dev.replaced(task=absolute_task_file(self.dev.task), test=test),
            )
        )

    @property
    def frozen(self) -> FrozenSettings | None:
        """The views of the frozen copy that the objectives need."""
        return next((term.frozen for term in self.objectives if term.frozen), None)

    @property
    def exits(self) -> ExitsSettings | None:
        """The objective that trains exits, if any."""
        return next((term for term in self.objectives if isinstance(term, ExitsSettings)), None)

    @property
    def pull(self) -> float:
        """The strength of the pull of the weights to their initial values."""
        return sum(term.weight * term.pull_strength for term in self.objectives)

    @property
    def student_columns(self) -> int:
        """The number of data columns the student reads: all except those read only by the frozen copy."""
        width = self.data.width
        needed = max(term.columns for term in self.objectives)
        return width if any(term.reads_all_columns for term in self.objectives) else min(width, max(needed, 1))

    @property
    def copies(self) -> int:
        """How often a sentence of a single column is encoded, each time with another dropout mask."""
        return max(term.columns for term in self.objectives) if self.student_columns == 1 else 1


def _term(table: Mapping[str, Any]) -> TermSettings | None:
    name = table.get("name")
    if not isinstance(name, str):
        raise InputError(f"an [[objective]] has no name; known: {', '.join(TERMS)}")
    kind = TERMS[name]
    return None if table.get("weight") == 0 else kind(**table)


class ContrastiveFormat(RecipeFormat[Recipe]):
    """Recipes that name text files."""

    def parse(self, source: RecipeSource, *, data: str | None = None) -> Recipe:
        """Parse a recipe; its text files may be in the recipe's folder or the data folder."""
        recipe = super().parse(source)
        files = tuple(source.locate(file, data) for file in recipe.data.files)
        return recipe.replaced(data=recipe.data.replaced(files=files))


RECIPES = ContrastiveFormat(
    recipe=Recipe,
    folder="contrastive",
    tables=("data", "model", "train", "dev"),
    listed={"objective": ListedTable("name", grows=True, removable=True)},
)


def load_recipe(name_or_file: str | Path, sets: Sequence[str] = (), *, data: str | None = None) -> Recipe:
    """Load a recipe by name or file, with overrides such as "train.learning_rate=1e-4".

    The text files of a recipe file may be in its folder or in the data folder.

    >>> load_recipe("simcse-unsup", ["train.batch_size=128"]).train.batch_size
    128
    """
    return RECIPES.load(name_or_file, sets, data=data)


def parse_recipe(tables: Tables, *, where: str = "recipe") -> Recipe:
    """Build a recipe from the tables of a TOML file; errors start with `where`."""
    return RECIPES.settings(tables, where=where)


def recipe_toml(recipe: Recipe) -> str:
    """Return the recipe as TOML, with all settings including defaults."""
    return RECIPES.toml(recipe)
