"""Declarations of tasks: where the rows are, what they mean, how they are scored.

One declaration serves every command: `evaluate` and `search` score by it, `multitask` trains on it. What training adds
(a head, a loss, a weight) stands in a recipe, and names the task.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from layerwise.data.kinds import KINDS, Kind
from layerwise.data.labels import label_name
from layerwise.errors import InputError
from layerwise.registry import check_known
from layerwise.settings import Settings

MTEB_LIKE = ("clustering", "reranking", "pairs", "bitext", "fewshot", "retrieval", "relatedness")
SUITES = ("sts", "transfer", "probing", "multilingual", *MTEB_LIKE)
GROUPS = {"all": SUITES, "mteb-like": MTEB_LIKE}  # suites of suites
ROLES = ("train", "dev", "test")
FIELDS = ("left", "right", "label", "subset", "split", "left_id", "right_id")


class Source(Settings):
    """The published source of a task's rows.

    Attributes:
        kind: "hub" (a data set of the Hugging Face hub) or "github" (files of a repository).
        repo: Its owner/name.
        revision: A commit, so that the rows cannot change under a published score.
        reader: How its files are read, one of `layerwise.data.published.READERS`; for the hub "datasets".
        options: For the reader: paths, subsets, columns.
    """

    label: ClassVar[str] = "source:"

    kind: Literal["hub", "github"]
    repo: str
    revision: str
    reader: str
    options: dict[str, Any] = Field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}:{self.repo}@{self.revision[:12]}"


class TextFile(Settings):
    """Texts by their ids, to which the rows of a task refer.

    Attributes:
        file: Parquet, CSV, TSV or JSONL; a path, or a name in the data folder, as a task's `file`.
        id: The column of the ids.
        text: The column of the texts.
        title: The column of titles, which come before the texts.
    """

    label: ClassVar[str] = "text file:"

    file: str = Field(min_length=1)
    id: str = "id"
    text: str = "text"
    title: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read: id, text and, if any, title."""
        return tuple(filter(None, (self.id, self.text, self.title)))


class Task(Settings):
    """The declaration of a task.

    >>> Task(name="my-pairs", kind="sts", file="pairs.csv", columns={"left": "a", "right": "b"}).metric
    'spearman'

    Attributes:
        name: The name of the task in commands and results.
        kind: One of `KINDS`: "sts" (graded pairs), "classification" (one text, or two where `columns` has `right`, and
            a class), "fewshot" (a class from 8 texts of each), "clustering", "retrieval" (queries and the passages that
            answer them, or duplicates among all texts), "reranking" (queries and their candidates),
            "pair-classification" (pairs with 0 or 1) or "bitext" (sentences and their translations).
        file: Its rows: Parquet, CSV, TSV or JSONL; a path, or a name in the data folder.
        suite: The group of tasks that it is evaluated with.
        metric: The headline figure; by default the first of its kind.
        columns: Which columns hold `left`, `right`, `label`, `subset`, `split` and the ids of left and right texts
            (`left_id`, `right_id`), where they differ from the kind's.
        splits: Role ("train", "dev", "test") -> the values of the column `split` that have this role. Rows of other
            splits are left out. Without splits all rows are scored, for classification by folds.
        rows: Role -> the number of rows that are published, "all" where there are no splits (`layerwise data check`).
        only: Only rows of this subset.
        mixable: Whether rows of its splits may be mixed and split at random; not where training rows are parts of test
            rows.
        duplicates: Retrieval: `label` 1 says that left and right are duplicates, and every text is searched among all.
        queries: Retrieval: where the queries are, if the column `left` has their ids instead of texts.
        corpus: Retrieval: all passages, if the column `right` has their ids.
        shots: Few-shot classification: the training rows of each class in a draw.
        labels: Classification: the classes in order; by default those of the rows, sorted. A whole number is one class
            however it is written (1, 1.0, "1.0").
        label_names: What predictions and results call the classes, one name for each of `labels`.
        scale: STS: the lowest and the highest score.
        source: Where the rows are published.
        digest: A hash of the rows; scores are comparable where it is the same.
        licence: As stated by the publisher of the rows.
        note: What a reader of its scores should know.
    """

    name: str
    kind: str
    file: str
    suite: str = "own"
    metric: str = ""
    columns: dict[str, str] = Field(default_factory=dict)
    splits: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    rows: dict[str, int] = Field(default_factory=dict)
    only: str | None = None
    mixable: bool = True
    duplicates: bool = False
    queries: TextFile | None = None
    corpus: TextFile | None = None
    shots: int = Field(default=8, ge=1)
    labels: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    scale: tuple[float, float] | None = None
    source: Source | None = None
    digest: str = ""
    licence: str = ""
    note: str = ""

    @classmethod
    def labelled(cls, values: Mapping[str, Any]) -> str:
        """Return the prefix of errors about these values."""
        return f"task {values['name']!r}:" if values.get("name") else "task:"

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, values: Any) -> Any:
        """Fill in the defaults of the kind; convert a single split name to a list."""
        if not isinstance(values, Mapping):
            return values
        completed = dict(values)
        kind, columns, splits = completed.get("kind"), completed.get("columns", {}), completed.get("splits", {})
        if isinstance(splits, Mapping):
            completed["splits"] = {role: [names] if isinstance(names, str) else names for role, names in splits.items()}
        if isinstance(kind, str) and kind in KINDS and isinstance(columns, Mapping):
            defaults = dict.fromkeys(FIELDS, "") | {"split": "split" if splits else ""}
            completed["columns"] = {**defaults, **KINDS[kind].columns, **columns}
            completed["metric"] = completed.get("metric") or next(iter(KINDS[kind].metrics))
        labels = completed.get("labels")
        if isinstance(labels, list | tuple):
            completed["labels"] = [label_name(name) if isinstance(name, str | float | int) else name for name in labels]
        return completed

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.name or any(mark in self.name for mark in "/\\ ,"):
            raise InputError("a name must not be empty or hold a slash, a comma or a space; rename it")
        if not self.file:
            raise InputError("file must not be empty; give the file of its rows")
        kind = self.declaration
        check_known(self.metric, kind.metrics, f"metric of {self.kind}")
        for key, names, known in (("columns", self.columns, FIELDS), ("splits", self.splits, ROLES)):
            for name in names:
                check_known(name, known, f"key of {key}")
        for place in kind.required:
            if not self.columns[place]:
                raise InputError(f"columns.{place} must not be empty; {self.kind} needs {', '.join(kind.required)}")
        if self.only is not None and not self.columns["subset"]:
            raise InputError(f"only = {self.only!r} needs the column of the subsets: columns = {{ subset = ... }}")
        if self.splits and not self.columns["split"]:
            raise InputError("splits need the column of their names: columns = { split = ... }")
        if self.duplicates and not self.columns["label"]:
            raise InputError("duplicates need a column of labels, 1 for a duplicate: columns = { label = ... }")
        if (self.queries or self.corpus) and (self.kind != "retrieval" or self.duplicates):
            raise InputError("queries and corpus are files of a retrieval task without duplicates; leave them out")
        self._check_labels()
        return self

    def _check_labels(self) -> None:
        if (self.labels or self.label_names) and not self.has_classes:
            raise InputError(f"labels and label_names are for classes; {self.kind} has none")
        if not all(self.labels):
            raise InputError("labels: an empty name and nan stand for no label; name the classes only")
        if not all(name.strip() for name in self.label_names):
            raise InputError("label_names: a name must not be empty")
        for key in ("labels", "label_names"):
            names = getattr(self, key)
            if duplicate := repeated(names):
                raise InputError(f"{key}: {duplicate!r} comes twice; name each class once")
        if self.label_names and len(self.label_names) != len(self.labels):
            raise InputError(
                f"label_names: {len(self.label_names)} for {len(self.labels)} labels; give labels = [...], the file's "
                f"classes in the order of their names"
            )
        if self.labels:
            self.check_classes(len(self.labels))
        if self.scale is not None and not self.declaration.graded:
            raise InputError(f"scale is for sts; {self.kind} has no scores")
        if self.scale is not None and not self.scale[0] < self.scale[1]:
            raise InputError(f"scale is {list(self.scale)}; expected the lowest and the highest score")

    @property
    def files(self) -> tuple[str, ...]:
        """All files of the task: the rows, then queries and corpus if they have separate files."""
        return (self.file, *(texts.file for texts in (self.queries, self.corpus) if texts is not None))

    @property
    def is_pair(self) -> bool:
        """Whether a row has two texts."""
        return bool(self.columns["right"])

    @property
    def declaration(self) -> Kind:
        """The declaration of its kind."""
        return KINDS[self.kind]

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes; otherwise they are numbers."""
        return self.declaration.classes

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of the texts: one, or two."""
        return tuple(filter(None, (self.columns["left"], self.columns["right"])))

    def check_classes(self, classes: int) -> None:
        """Raise for a number of classes for which the metric is not defined."""
        if classes < 2:
            raise InputError(f"task {self.name!r}: labels: {classes} class; a classification needs 2 or more")
        if self.metric == "f1" and classes != 2:
            raise InputError(f"task {self.name!r}: metric 'f1' is for two classes, but there are {classes}")


def repeated(names: Sequence[str]) -> str | None:
    """The first name that comes more than once, if any."""
    return next((name for name in names if names.count(name) > 1), None)
