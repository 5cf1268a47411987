"""The settings of a training: frozen values, checked when made. A recipe is a TOML file of exactly these."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from layerwise.errors import InputError
from layerwise.mixes import LayerAttention, LayerWk, parse_mix
from layerwise.registry import check_known
from layerwise.train.terms import FrozenSettings, TermSettings

HEADS = ("none", "mlp", "linear", "mlp-bn")
PRECISIONS = ("float32", "tf32", "bf16")
SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The text to train on.

    Attributes:
        files: Files or `hub:owner/name[:split]`, read one after the other; a name that is no path is looked up in the
            data folder.
        columns: One: every sentence is its own positive (by dropout); two: pairs; three: pairs and a hard negative.
        stack: Take the columns one below the other, as one column of sentences.
        limit: Only the first so many rows.
        max_length: Tokens beyond this are cut in training.
        stream: Never hold the text in memory; needs `steps` in [train].
        keep_duplicates: Train on equal rows as often as they come.
        bucket: Batches of like lengths.
    """

    files: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("text",)
    stack: bool = False
    limit: int | None = None
    max_length: int = 32
    stream: bool = False
    keep_duplicates: bool = False
    bucket: bool = True

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= 3 and not self.stack:
            raise InputError(f"[data] columns: 1 to 3 names, not {len(self.columns)}")
        if self.max_length < 3:
            raise InputError(f"[data] max_length {self.max_length}: give 3 or more, for two tokens are special ones")
        if self.limit is not None and self.limit < 2:
            raise InputError(f"[data] limit {self.limit}: give 2 or more, contrast needs another sentence")
        if self.stack and self.stream:
            raise InputError("[data] stack and stream don't go together; write the sentences into one column")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Encoder, pooler and head.

    Attributes:
        encoder: A folder or hub name.
        pooler: The mix that makes the embedding in training: "last @ cls", "first-last @ mean",
            "last @ cls | last @ mean", "attention(cls, mean, last=cls)", …
        head: Behind the pooler: "mlp" (linear and tanh), "linear" (a projection), "mlp-bn" (DiffCSE's two layers with
            batch norm), "none".
        width: The head's width; the encoder's without it.
        keep_head: Keep the head in the finished model.
        inference: The finished model's mix where it is not the pooler ("train only"), such as "last @ cls".
        freeze: "embeddings", or nothing.
        dropout: Set the encoder's dropout rate in training; its own without it.
    """

    encoder: str = ""
    pooler: str = "last @ cls"
    head: str = "none"
    width: int | None = None
    keep_head: bool = False
    inference: str = ""
    freeze: tuple[str, ...] = ()
    dropout: float | None = None

    def __post_init__(self) -> None:
        check_known(self.head, HEADS, "[model] head")
        for text in (self.pooler, *filter(None, [self.inference])):
            if isinstance(parse_mix(text), LayerWk):
                raise InputError(f"[model] {text!r} can't be trained: WK has nothing to learn by; take another mix")
        if self.inference and isinstance(parse_mix(self.inference), LayerAttention):
            raise InputError(
                "[model] inference is a mix without weights of its own; to keep an attention pooler, leave it out"
            )
        for name in self.freeze:
            check_known(name, ("embeddings",), "[model] freeze")
        if self.keep_head and (self.inference or self.head in ("none", "mlp-bn")):
            raise InputError("[model] keep_head needs head mlp or linear, and the pooler itself at inference")
        if self.width is not None and (self.width < 1 or self.head in ("none", "mlp-bn")):
            raise InputError("[model] width is the head's, 1 or more; give head mlp or linear")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise InputError(f"[model] dropout {self.dropout} is not from 0 to below 1")


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """How weights are changed.

    Attributes:
        epochs: Passes over the text.
        steps: Stop after so many steps, whatever `epochs` says; a streamed corpus needs it.
        batch_size: Rows a process and step.
        chunk: Gradient caching: run the encoder over so many sentences at a time, for batches beyond memory; 0: off.
        learning_rate: The highest.
        warmup: The share of the steps over which it rises.
        schedule: How it falls.
        weight_decay: AdamW's, not on biases and norms.
        betas: AdamW's.
        max_grad_norm: Gradients are clipped to it; 0: not.
        precision: "bf16" (autocast; weights stay float32), "tf32" (faster products of float32 on NVIDIA GPUs; for small
            models faster than bf16, which converts much) or "float32". A CPU always takes float32.
        cuda_graphs: On one GPU, launch the encoder's pass as a whole: several times faster for small models.
    """

    epochs: float = 1
    steps: int | None = None
    batch_size: int = 64
    chunk: int = 0
    learning_rate: float = 3e-5
    warmup: float = 0.0
    schedule: str = "linear"
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = 1.0
    precision: str = "bf16"
    cuda_graphs: bool = True

    def __post_init__(self) -> None:
        check_known(self.precision, PRECISIONS, "[train] precision")
        check_known(self.schedule, SCHEDULES, "[train] schedule")
        if self.batch_size < 2:
            raise InputError(
                f"[train] batch_size {self.batch_size}: give 2 or more; one-sentence batches have no negatives"
            )
        for name, good, wanted in (
            ("epochs", 0 < self.epochs < math.inf, "a number above 0"),
            ("steps", self.steps is None or self.steps >= 1, "1 or more"),
            ("learning_rate", 0 < self.learning_rate < math.inf, "a number above 0"),
            ("warmup", 0 <= self.warmup < 1, "a share from 0 to below 1"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "0 or more"),
            ("chunk", self.chunk >= 0, "0 or more"),
            ("max_grad_norm", 0 <= self.max_grad_norm < math.inf, "0 or more"),
        ):
            if not good:
                raise InputError(f"[train] {name} {getattr(self, name)}: give {wanted}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"[train] betas are two numbers from 0 to below 1, not {list(self.betas)}")


@dataclass(frozen=True, kw_only=True)
class DevSettings:
    """What is looked at while training, and afterwards.

    Attributes:
        task: The task whose dev split picks the best checkpoint; empty: the last step's weights are kept.
        split: Of that task.
        every: Steps between looks.
        patience: Stop after so many looks without a better score; 0: never.
        test: Tasks or suites to score the finished model on, such as ["sts"].
        log_every: Steps between logged losses.
        measures: Logged at every look: "token-similarity" (TokSim), "layer-similarity" (SetSim), "alignment",
            "uniformity".
    """

    task: str = "stsb"
    split: str = "dev"
    every: int = 125
    patience: int = 0
    test: tuple[str, ...] = ()
    log_every: int = 25
    measures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.every < 1 or self.log_every < 1 or self.patience < 0:
            raise InputError("[dev] every and log_every are 1 or more, patience 0 or more")
        if self.split == "test":
            raise InputError('[dev] split = "test": checkpoints are never picked on test data; take "dev" or "train"')
        if self.measures and not self.task:
            raise InputError("[dev] measures are taken at every look at the dev set: name a task")
        if self.patience and not self.task:
            raise InputError("[dev] patience needs a dev set: name a task, or set patience = 0")
        if self.measures:
            from layerwise.measures import scalar_measures  # all of them, which take a second to import

            for name in self.measures:
                check_known(name, scalar_measures(), "[dev] measures")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides a training but the seed."""

    name: str
    about: str = ""
    reached: str = ""
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    objectives: tuple[TermSettings, ...]
    train: OptimiserSettings = field(default_factory=OptimiserSettings)
    dev: DevSettings = field(default_factory=DevSettings)

    def __post_init__(self) -> None:
        if not self.objectives:
            raise InputError(f"recipe {self.name!r} has no [[objective]]; each is one, with a name and its settings")
        names = [term.name for term in self.objectives]
        if len(set(names)) < len(names):
            raise InputError(f"recipe {self.name!r}: an objective comes twice; give it one weight")
        if len({term.frozen for term in self.objectives if term.frozen}) > 1:
            raise InputError(f"recipe {self.name!r}: its objectives want different views of the frozen copy")
        if self.train.chunk and any(term.tokens for term in self.objectives):
            raise InputError("[train] chunk: gradient caching can't be combined with objectives mlm and diffcse")
        if self.data.stream and self.train.steps is None:
            raise InputError("[data] stream: how many steps an epoch has is not known; give steps under [train]")
        self._check_columns()

    def _check_columns(self) -> None:
        given = 1 if self.data.stack else len(self.data.columns)
        wanted = max(term.columns for term in self.objectives)
        if self.frozen is not None and self.frozen.column >= given:
            raise InputError(f"objective column = {self.frozen.column}, but [data] has {given} column(s), from 0")
        if given > 1 and wanted > given:
            raise InputError(f"an objective needs {wanted} columns, but [data] has {given}")
        frozen = {self.frozen.column} if self.frozen else set()
        unread = set(range(given)) - set(range(self.student_columns)) - frozen
        if unread:
            names = [self.data.columns[place] for place in sorted(unread)]
            raise InputError(f"no objective reads [data] column {', '.join(names)}; leave it out, or add info-nce")
        for term in self.objectives:
            term.check_columns(given)

    @property
    def frozen(self) -> FrozenSettings | None:
        """What is wanted of the frozen copy."""
        return next((term.frozen for term in self.objectives if term.frozen), None)

    @property
    def pull(self) -> float:
        """The strength with which weights are pulled to where they started."""
        return sum(term.weight * term.pull_strength for term in self.objectives)

    @property
    def student_columns(self) -> int:
        """How many columns of the data the student reads: all but those that only the frozen copy reads."""
        given = 1 if self.data.stack else len(self.data.columns)
        wanted = max(term.columns for term in self.objectives)
        return given if any(term.name == "info-nce" for term in self.objectives) else min(given, max(wanted, 1))

    @property
    def copies(self) -> int:
        """How often a one-column sentence goes through the student, each time with other dropout."""
        return max(term.columns for term in self.objectives) if self.student_columns == 1 else 1

    def facts(self) -> dict[str, Any]:
        """For JSON and the model card."""
        found = asdict(self)
        found["objectives"] = [{"name": term.name, **asdict(term)} for term in self.objectives]
        return found
