"""Tasks are declarations: where the rows are, what they mean, how they are scored."""

from dataclasses import dataclass, field
from typing import Any

from layerwise.errors import InputError

KINDS = ("sts", "classification", "retrieval")
SUITES = ("sts", "transfer", "probing", "retrieval", "multilingual")
ROLES = ("train", "dev", "test")
_METRICS = {
    "sts": ("spearman", "pearson"),
    "classification": ("accuracy",),
    "retrieval": ("mrr@10",),
}
_COLUMNS = {
    "sts": {"left": "sentence1", "right": "sentence2", "label": "score"},
    "classification": {"left": "text", "label": "label"},
    "retrieval": {"left": "query", "right": "passage"},
}
_PLACES = ("left", "right", "label", "subset", "split")


@dataclass(frozen=True)
class Source:
    """Where a task's rows are published.

    Args:
        kind: "hub" (a data set of the Hugging Face hub) or "github" (files of a repository).
        repo: Its owner/name.
        revision: A commit, so that the rows can't change under a published score.
        reader: How its files are read, one of `layerwise.data.published.READERS`; for the hub "datasets".
        options: For the reader: paths, subsets, columns.
    """

    kind: str
    repo: str
    revision: str
    reader: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("hub", "github"):
            raise InputError(f"a source is of the kind {self.kind!r}; known are hub and github")

    def __str__(self) -> str:
        return f"{self.kind}:{self.repo}@{self.revision[:12]}"


@dataclass(frozen=True)
class Task:
    """What is evaluated.

    Args:
        name: What commands and results call it.
        kind: "sts" (graded pairs: a correlation), "classification" (one text or two, and a class) or "retrieval"
            (queries and the passages that answer them, or duplicates among all texts).
        file: Its rows, under the data folder or beside the task file: Parquet, CSV, TSV or JSONL.
        suite: The group that it is evaluated with.
        metric: The headline figure.
        columns: Which columns hold `left`, `right`, `label`, `subset` and `split`, where they differ from the kind's.
        splits: Role ("train", "dev", "test") -> the file's own names of that split. Without a "test" all rows are
            folded (classification) or scored; with splits, rows of others than these are left out.
        rows: Role -> how many rows the published data has, "all" where there are no splits; checked by `data check`.
        only: Only the rows of this subset.
        mixable: Whether rows of its splits may be mixed and split at random; not where training rows are parts of test
            rows.
        duplicates: Retrieval: `label` 1 says that left and right are duplicates, and every text is searched among all.
        source: Where the rows are published.
        digest: A hash of the rows; scores are comparable where it is the same.
        licence: As stated by who published the rows.
        note: What a reader of its scores should know.
    """

    name: str
    kind: str
    file: str
    suite: str = "own"
    metric: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    splits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    only: str = ""
    mixable: bool = True
    duplicates: bool = False
    source: Source | None = None
    digest: str = ""
    licence: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"task {self.name!r} is of the kind {self.kind!r}; known are {', '.join(KINDS)}")
        if not self.name or any(mark in self.name for mark in "/\\ ,"):
            raise InputError(f"task name {self.name!r} has a slash, a comma or a space, or is empty; rename it")
        object.__setattr__(self, "metric", self.metric or _METRICS[self.kind][0])
        if self.metric not in _METRICS[self.kind]:
            metrics = ", ".join(_METRICS[self.kind])
            raise InputError(f"task {self.name!r} has the metric {self.metric!r}; tasks of its kind have {metrics}")
        for given, known in ((self.columns, _PLACES), (self.splits, ROLES)):
            if unknown := sorted(set(given) - set(known)):
                raise InputError(f"task {self.name!r} names {unknown[0]!r}; known there are {', '.join(known)}")
        columns = dict.fromkeys(_PLACES, "") | {"split": "split" if self.splits else ""}
        columns |= _COLUMNS[self.kind] | self.columns
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "splits", {role: _names(given) for role, given in self.splits.items()})
        if self.only and not columns["subset"]:
            raise InputError(f"task {self.name!r} is only {self.only!r}; say which column that is in: columns.subset")
        needed = ("left",) if self.kind == "classification" else ("left", "right")
        if empty := [place for place in needed if not columns[place]]:
            raise InputError(f"task {self.name!r} has no column {empty[0]!r}; its rows need {', '.join(needed)}")
        if self.duplicates and not columns["label"]:
            raise InputError(f"task {self.name!r} is of duplicates and needs a column of labels, 1 for a duplicate")

    @property
    def is_pair(self) -> bool:
        """Whether a row has two texts."""
        return bool(self.columns["right"])


def _names(given: Any) -> tuple[str, ...]:
    """One name, or several: "test" is what is meant, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)
