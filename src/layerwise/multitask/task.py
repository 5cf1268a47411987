"""What a recipe says about one task: its rows, head, loss and score. A frozen value, checked when made."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from layerwise.errors import InputError
from layerwise.multitask.label_name import label_name
from layerwise.registry import check_known

KINDS = ("classification", "pairs", "similarity")
ROLES = ("train", "dev", "test")
FEATURES = ("concat", "difference-sum", "all")
HEADS = {"classification": ("linear", "mlp"), "pairs": ("linear", "mlp"), "similarity": ("cosine", "linear", "mlp")}
LOSSES = {
    "classification": ("cross-entropy", "binary"),
    "pairs": ("cross-entropy", "binary"),
    "similarity": ("mse",),
}
METRICS = {"classification": ("accuracy", "f1"), "pairs": ("accuracy", "f1"), "similarity": ("pearson", "spearman")}
_SCALE = (0.0, 5.0)
_NAME = re.compile(r"[A-Za-z0-9_-]+")  # it names a module of the heads and a key of the results


def _train_and_dev() -> dict[str, tuple[str, ...]]:
    return {"train": ("train",), "dev": ("dev",)}


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """One task: a file of labelled rows, and the head, loss and score for them.

    Attributes:
        name: Letters, digits, - and _.
        kind: "classification" (a text and its class), "pairs" (two texts and a class), "similarity" (two texts and a
            number).
        file: A path; where there is no such file, it is looked up in the data folder.
        columns: Those of the texts: one for "classification", else two.
        label: The column of the class or the number.
        labels: The file's classes in the order wanted, whole numbers as `label_name` has them; empty: those of the
            training rows, sorted.
        label_names: What predictions, probabilities and results call the classes: one for each of `labels`, in their
            order; empty: as `labels` has them.
        scale: Similarity: the lowest and the highest number.
        head: "linear", "mlp" (three linear layers with ReLU between); for similarity also "cosine", which has no
            weights. Dropout stands before every linear layer. Empty: "cosine" for similarity, else "linear".
        features: What a head takes of two embeddings u and v: "concat" [u; v], "difference-sum" [|u−v|; |u+v|], "all"
            [u; v; |u−v|; u·v], where u·v is taken number by number.
        loss: "cross-entropy", "binary" (two classes, one logit), "mse" (on the task's scale). Empty: "mse" for
            similarity, "binary" for pairs of two classes, else "cross-entropy".
        dropout: The head's.
        weight: The loss's, read where [mixing] says weights = "given"; 0: the task is left out of training.
        metric: "accuracy" or "f1" (of the second of two classes), for similarity "pearson" or "spearman"; empty: the
            first.
        splits: Role ("train", "dev" and, if wanted, "test") -> the file's own names of that split. Rows of other
            splits are left out.
        split_column: The column of these names.
        supervised: False: the encoder learns from this task's texts by contrast alone. Head and loss are there all the
            same, so that the score can be told, but the head is trained on detached embeddings: nothing of its loss
            reaches the encoder.
        contrast: The weight of the contrastive term (SimCSE: every text is its own positive, by dropout); 0: none.
        contrast_temperature: What its cosines are divided by.
        contrast_dropout: The dropout rate of the second view; the encoder's own without it.
        max_length: Tokens beyond this are cut.
        limit: Only the first so many training rows; dev and test stay whole, so that scores can be compared.
    """

    name: str
    kind: str
    file: str
    columns: tuple[str, ...]
    label: str = "label"
    labels: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    scale: tuple[float, float] = _SCALE
    head: str = ""
    features: str = "difference-sum"
    loss: str = ""
    dropout: float = 0.3
    weight: float = 1.0
    metric: str = ""
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=_train_and_dev, hash=False)
    split_column: str = "split"
    supervised: bool = True
    contrast: float = 0.0
    contrast_temperature: float = 0.05
    contrast_dropout: float | None = None
    max_length: int = 128
    limit: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(f"task name {self.name!r}: give letters, digits, - and _")
        check_known(self.kind, KINDS, self._said("kind"))
        object.__setattr__(self, "head", self.head or HEADS[self.kind][0])
        check_known(self.head, HEADS[self.kind], self._said(f"head of {self.kind}"))
        check_known(self.features, FEATURES, self._said("features"))
        check_known(self.loss or LOSSES[self.kind][0], LOSSES[self.kind], self._said("loss"))
        object.__setattr__(self, "metric", self.metric or METRICS[self.kind][0])
        check_known(self.metric, METRICS[self.kind], self._said("metric"))
        object.__setattr__(self, "labels", tuple(map(label_name, self.labels)))
        object.__setattr__(self, "splits", {role: _names(given) for role, given in self.splits.items()})
        self._check_columns()
        self._check_labels()
        self._check_splits()
        self._check_numbers()

    def _said(self, key: str) -> str:
        return f"task {self.name!r}: {key}"

    def _check_columns(self) -> None:
        wanted = 2 if self.is_pair else 1
        if len(self.columns) != wanted:
            raise InputError(f"{self._said('columns')}: {self.kind} takes {wanted}, not {len(self.columns)}")
        used = [*self.columns, self.label, self.split_column]
        if not all(used) or not self.file:
            raise InputError(f"{self._said('file')}, columns, label and split_column: none of them may be empty")
        if len(set(used)) < len(used):
            raise InputError(
                f"{self._said('columns')}: {', '.join(used)}: one comes twice; texts, label and split differ"
            )

    def _check_labels(self) -> None:
        if self.labels and self.kind == "similarity":
            raise InputError(f"{self._said('labels')} are for classes; similarity has a scale")
        if not all(self.labels):
            raise InputError(f"{self._said('labels')}: an empty one or nan stands for no label; name classes alone")
        for key in ("labels", "label_names"):
            twice = _twice(getattr(self, key))
            if twice is not None:
                raise InputError(f"{self._said(key)}: {twice!r} comes twice; name each class once")
        self._check_label_names()
        if self.labels:
            self.check_classes(len(self.labels))
        if self.kind != "similarity" and self.scale != _SCALE:
            raise InputError(f"{self._said('scale')} is for similarity; {self.kind} has labels")
        low, high = self.scale if len(self.scale) == 2 else (0.0, 0.0)
        if not (isfinite(low) and isfinite(high) and low < high):
            raise InputError(f"{self._said('scale')} {list(self.scale)}: give the lowest and the highest number")

    def _check_label_names(self) -> None:
        if self.label_names and len(self.label_names) != len(self.labels):
            raise InputError(
                f"{self._said('label_names')}: {len(self.label_names)} for {len(self.labels)} labels; give labels = "
                f"[...], the file's classes in the order of their names"
            )
        if not all(name.strip() for name in self.label_names):
            raise InputError(f"{self._said('label_names')}: one is empty; give each class a name")

    def _check_splits(self) -> None:
        for role in self.splits:
            check_known(role, ROLES, self._said("splits"))
        for role in ("train", "dev"):
            if not self.splits.get(role):
                raise InputError(f"{self._said('splits')} name no {role}; say which rows: {role} = [...]")
        names = [name for own in self.splits.values() for name in own]
        twice = _twice(names)
        if twice is not None:
            raise InputError(f"{self._said('splits')}: {twice!r} comes twice; rows that train neither choose nor test")

    def _check_numbers(self) -> None:
        for key in ("weight", "contrast"):
            if not 0 <= getattr(self, key) < float("inf"):
                raise InputError(f"{self._said(key)} {getattr(self, key)}: give 0 or more")
        if not 0 < self.contrast_temperature < float("inf"):
            raise InputError(f"{self._said('contrast_temperature')} must be above 0")
        for key in ("dropout", "contrast_dropout"):
            rate = getattr(self, key)
            if rate is not None and not 0 <= rate < 1:
                raise InputError(f"{self._said(key)} {rate} is not from 0 to below 1")
        if self.contrast_dropout is not None and not self.contrast:
            raise InputError(f"{self._said('contrast_dropout')} is not read without contrast; set contrast = 0.1")
        if not self.supervised and not self.contrast:
            raise InputError(
                f"{self._said('supervised')} = false leaves contrast alone, but contrast is 0; set it to 1"
            )
        if self.max_length < 3:
            raise InputError(f"{self._said('max_length')} {self.max_length}: give 3 or more")
        if self.limit is not None and self.limit < 2:
            raise InputError(f"{self._said('limit')} {self.limit}: give 2 or more rows")

    @property
    def is_pair(self) -> bool:
        """Whether a row has two texts."""
        return self.kind != "classification"

    def check_classes(self, classes: int) -> None:
        """Refuse a number of classes that the loss or the metric has no answer for."""
        if classes < 2:
            raise InputError(f"{self._said('labels')}: {classes} class; there is nothing to tell apart, give 2 or more")
        for key, value in (("loss", "binary"), ("metric", "f1")):
            if getattr(self, key) == value and classes != 2:
                raise InputError(f"{self._said(key)} {value!r} is for two classes, but there are {classes}")

    def loss_for(self, classes: int) -> str:
        """The loss, by the kind where none is named; `classes` is 0 for similarity."""
        if self.loss:
            return self.loss
        if self.kind == "similarity":
            return "mse"
        return "binary" if self.kind == "pairs" and classes == 2 else "cross-entropy"

    def outputs_for(self, classes: int) -> int:
        """How many numbers the head gives for a row: one a class, or one."""
        return classes if self.loss_for(classes) == "cross-entropy" else 1


def _twice(names: Sequence[str]) -> str | None:
    """The first that comes more than once, if any."""
    return next((name for name in names if names.count(name) > 1), None)


def _names(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """One name, or several: "train" is what is meant, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)
