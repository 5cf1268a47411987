"""The options of `layerwise search`, and the rules that hold between them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import typer
from pydantic import ConfigDict, model_validator

from layerwise.cli.inputs import check_file
from layerwise.cli.options import AsJson, DataFolder, Delimiter, Encoding, InputFormat, Model
from layerwise.errors import InputError
from layerwise.registry import check_known
from layerwise.settings import Settings

if TYPE_CHECKING:
    from layerwise.data import TaskRows
    from layerwise.search import Search

_SCREENED = 100  # choosing pairs that screen every view
_CRITERIA = ("dropout", "pairs", "neighbours", "repetition", "deletion", "all")
_INPUT, _WHAT, _SELECTION, _OUTPUT = "Input", "What to search", "Selection", "Output"


def _option(help: str, panel: str, *names: str, flag: bool = False) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar="" if flag else None)


def _typed(name: str) -> str:
    """An option as a user types it."""
    return f"--{name.replace('_', '-')}"


class SearchOptions(Settings):
    """The options; `search()` is the library's search that they ask for."""

    model_config = ConfigDict(allow_inf_nan=True)  # refused below, by the option's name
    label: ClassVar[str] = ""

    model: Model
    sources: Annotated[
        tuple[str, ...],
        typer.Argument(
            metavar="PAIRS...",
            help="CSV, TSV, JSONL or Parquet; or a task, by a task file *.toml or name; several tasks get one set.",
        ),
    ]
    left: Annotated[str, _option("The column of the first sentence (the query).", _INPUT)] = "sentence1"
    right: Annotated[str, _option("The column of the second sentence (the passage).", _INPUT)] = "sentence2"
    score: Annotated[
        str | None, _option("The column of the score or label: 'score', but none for retrieval.", _INPUT)
    ] = None
    where: Annotated[str | None, _option("COLUMN=VALUE: take only such rows, e.g. split=test.", _INPUT)] = None
    input_format: InputFormat = None
    encoding: Encoding = None
    delimiter: Delimiter = None
    data: DataFolder = None
    split: Annotated[
        str | None, _option("Only these rows of a task: train, dev or test; half of them choose.", _INPUT)
    ] = None
    limit: Annotated[int | None, _option("At most so many pairs, drawn by --seed.", _INPUT)] = None
    layers: Annotated[
        str,
        _option(
            "Which sets: all, 'up to 4', 'exactly 3', contiguous, 'with 0,1', 'without 12', or the layers to use such "
            "as 0-6,12; several joined by ';'.",
            _WHAT,
        ),
    ] = "all"
    max_layer: Annotated[int | None, _option("No layer above this one: cheaper embeddings.", _WHAT)] = None
    pooling: Annotated[
        str | None,
        _option(
            "Token poolings to search: mean, cls, max, last, weighted-mean, mean-but-first; several by commas; else "
            "the model's. With --prompts also all.",
            _WHAT,
        ),
    ] = None
    prompts: Annotated[
        str | None,
        _option("Search prompts too: auto, names by commas, or a file of prompts (TOML, or one a line).", _WHAT),
    ] = None
    scale: Annotated[
        str | None, _option("Average views as they are (none), or normalised to length 1 (unit).", _WHAT)
    ] = None
    remove: Annotated[
        str | None,
        _option(
            "Remove from views: none, mean, or a number of principal components beside the mean; several by commas "
            "are searched alone and mixed.",
            _WHAT,
        ),
    ] = None
    corpus: Annotated[
        Path | None, _option("The text on which means and components are fitted; else the pairs that choose.", _WHAT)
    ] = None
    fit_on: Annotated[
        str | None,
        _option(
            "Fit --remove on --corpus (corpus), on the pairs that choose (pairs), or on the better of both (either).",
            _WHAT,
        ),
    ] = None
    max_cost: Annotated[
        float | None, _option("With --prompts: the most an embedding may cost, in passes of the whole model.", _WHAT)
    ] = None
    max_passes: Annotated[int | None, _option("With --prompts: the most prompts that a set may have.", _WHAT)] = None
    head: Annotated[
        bool, _option("Apply the model's head (one linear layer) to every set.", _WHAT, "--head", flag=True)
    ] = False
    metric: Annotated[
        str | None,
        _option(
            "spearman, pearson; cosine_ap, cosine_accuracy (labels 0, 1); mrr@10, recall@5, ndcg@10; else the "
            "task's, or spearman.",
            _SELECTION,
        ),
    ] = None
    weights: Annotated[
        str | None, _option("With several tasks: what each counts, such as 2,1; else all the same.", _SELECTION)
    ] = None
    method: Annotated[str, _option("auto, exhaustive, beam, greedy, or weights (continuous).", _SELECTION)] = "auto"
    dev: Annotated[
        float | None,
        _option("Pairs that choose, or their share below 1; else a task's dev rows, or half.", _SELECTION),
    ] = None
    splits: Annotated[
        int | None, _option("Random splits into dev and test (1); scores are their means.", _SELECTION)
    ] = None
    seed: Annotated[int, _option("The seed of splits and resamples.", _SELECTION)] = 0
    no_labels: Annotated[
        str | None,
        _option(
            "Choose without scores: dropout (two passes), pairs (the two columns), neighbours (lines), repetition, "
            "deletion (of words), or all (the last three must agree).",
            _SELECTION,
        ),
    ] = None
    compare_unlabelled: Annotated[
        bool,
        _option(
            "Show beside it what dropout alone, without scores, chooses.", _SELECTION, "--compare-unlabelled", flag=True
        ),
    ] = False
    save: Annotated[Path | None, _option("Save the model that the verdict says to use here.", _OUTPUT)] = None
    overwrite: Annotated[bool, _option("Replace what is at --save.", _OUTPUT, "--overwrite", flag=True)] = False
    table: Annotated[Path | None, _option("Write every set's dev score: *.csv, .tsv, .jsonl, .parquet.", _OUTPUT)] = (
        None
    )
    as_json: AsJson = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.no_labels is not None:
            check_known(self.no_labels, _CRITERIA, "--no-labels")
            for name in ("metric", "score", "dev", "splits"):
                if getattr(self, name) is not None:
                    raise InputError(f"--{name} is for graded pairs; leave it out with --no-labels")
            if self.corpus is not None:
                raise InputError(
                    "--corpus is for graded pairs; without labels the text itself is what --remove is fitted on"
                )
            if self.method == "weights":
                raise InputError("--method weights needs pairs with scores or labels; leave it out with --no-labels")
        self._check_numbers()
        if self.head and "@" in (self.metric or ""):
            raise InputError(f"--head is for metrics of pairs, not for {self.metric}; leave it out")
        if self.where is not None and "=" not in self.where:
            raise InputError(f"--where {self.where!r} is not COLUMN=VALUE")
        if self.corpus is not None and self.remove is None:
            raise InputError(
                "--corpus is the text that --remove is fitted on; give --remove too, such as --remove mean"
            )
        self._check_fit_on()
        if self.searches_views:
            self._check_views()
        elif "all" in self.poolings:
            raise InputError(
                "--pooling all is for a search of views; add --prompts auto or --scale unit, or name poolings"
            )
        return self

    def _check_numbers(self) -> None:
        if self.dev is not None and not 0 < self.dev < math.inf:
            raise InputError(f"--dev {self.dev:g} is not possible: some must choose; give a number, or a share below 1")
        if self.splits is not None and self.splits < 1:
            raise InputError(f"--splits {self.splits} is not possible; give 1 or more")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative; give 0 or more")
        for name in ("max_cost", "max_passes"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise InputError(f"{_typed(name)} {limit:g} is not possible; give more than 0")

    def _check_views(self) -> None:
        """Refuse options that are for sets of layers only."""
        for name in ("layers", "max_layer", "method", "head", "table", "compare_unlabelled"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise InputError(f"{_typed(name)} is for sets of layers; leave it out with {self.views_by}")
        check_known(self.scale or "unit", ("none", "unit"), "--scale")
        if self.no_labels == "pairs":
            raise InputError(
                "--no-labels pairs is for sets of layers; choose views by neighbours, repetition, deletion, dropout or "
                "all"
            )
        if "@" in (self.metric or ""):
            raise InputError(f"{self.views_by} is for graded pairs, not for {self.metric}; leave one of them out")

    def check_tasks(self, tasks: "Sequence[TaskRows]") -> None:
        """Refuse options that the kind or number of tasks excludes; files are tasks of graded pairs or queries."""
        if len(tasks) > 1:
            for name, is_given in (
                ("--metric", self.metric is not None),
                (self.views_by, self.views_by),
                ("--head", self.head),
            ):
                if is_given:
                    raise InputError(f"{name} is for one task, not for several; leave it out")
        elif self.weights is not None:
            raise InputError("--weights is for several tasks; give 2 or more, or leave it out")
        for rows in tasks:
            name, kind = rows.task.name, rows.task.kind
            if kind != "sts" and self.views_by:
                raise InputError(f"{self.views_by} is for graded pairs, but task {name!r} is of {kind}; leave it out")
            if kind not in ("sts", "classification") and self.head:
                raise InputError(f"--head is for graded pairs, but task {name!r} is of {kind}; leave it out")
            if kind == "classification":
                given = {"dev": self.dev, "head": self.head or None, "method": self.method.replace("auto", "") or None}
                if option := next((option for option, value in given.items() if value is not None), None):
                    raise InputError(f"{_typed(option)} is for pairs, but task {name!r} has classes; leave it out")

    def _check_fit_on(self) -> None:
        if self.fit_on is None:
            return
        check_known(self.fit_on, ("corpus", "pairs", "either"), "--fit-on")
        if self.remove is None:
            raise InputError(
                f"--fit-on {self.fit_on} says what --remove is fitted on; give --remove too, such as --remove mean"
            )
        if self.corpus is None and self.fit_on != "pairs":
            raise InputError(f"--fit-on {self.fit_on} needs a text; give --corpus too")
        if self.corpus is not None and self.fit_on == "pairs":
            raise InputError("--fit-on pairs has no use for --corpus; leave one of them out, or give --fit-on either")

    @property
    def views_by(self) -> str:
        """The first option that asks for views; empty if none does."""
        named = ("prompts", "scale", "remove", "corpus", "fit_on", "max_cost", "max_passes")
        asked = next((_typed(name) for name in named if getattr(self, name) is not None), "")
        return asked or ("--no-labels all" if self.no_labels == "all" else "")

    @property
    def searches_views(self) -> bool:
        """Whether views are searched, not sets of layers."""
        return bool(self.views_by)

    @property
    def poolings(self) -> list[str]:
        """The token poolings by name."""
        return [name.strip() for name in self.pooling.split(",")] if self.pooling else []

    @property
    def reading(self) -> dict[str, Any]:
        """How files are read."""
        return {"format": self.input_format, "encoding": self.encoding, "delimiter": self.delimiter}

    def search(self) -> "Search":
        """The library's search with these options."""
        from layerwise.search import Search, Space

        views: dict[str, Any] = {}
        if self.searches_views:
            if self.corpus is not None:
                check_file(self.corpus)
            views = {
                "prompts": read_prompts(self.prompts),
                "scale": self.scale or "unit",
                "remove": _read_remove(self.remove),
                "fit_on": self.fit_on,
                "max_cost": self.max_cost,
                "max_passes": self.max_passes,
                "screen_pairs": None if self.no_labels else _SCREENED,
            }
        return Search(
            space=Space.parse(self.layers, highest=self.max_layer),
            method=self.method,
            metric=self.metric,
            poolings=self.poolings,
            head=self.head,
            criterion=self.no_labels,
            weights=_read_weights(self.weights),
            dev=self.dev,
            splits=self.splits,
            role=self.split,
            limit=self.limit,
            seed=self.seed,
            **views,
        )


def read_prompts(prompts: str | None) -> Any:
    """Prompts from a file or by name; None without any."""
    from layerwise.encoder import named_prompt, read_prompts

    if prompts is None or prompts == "auto":
        return prompts
    if Path(prompts).suffix in (".toml", ".txt"):
        check_file(prompts)
    if Path(prompts).is_file():
        return tuple(read_prompts(Path(prompts)).values())
    return tuple(named_prompt(name.strip()) for name in prompts.split(","))


def _read_remove(remove: str | None) -> tuple[int | None, ...] | None:
    if remove is None:
        return None
    counts: list[int | None] = []
    for part in remove.split(","):
        word = part.strip()
        if word not in ("none", "mean") and not (word.isdecimal() and int(word)):
            raise InputError(f"--remove {remove!r}: {word!r} is neither none, mean nor a number of components")
        counts.append(None if word == "none" else 0 if word == "mean" else int(word))
    return tuple(dict.fromkeys(counts))


def _read_weights(weights: str | None) -> list[float]:
    try:
        return [float(weight) for weight in weights.split(",")] if weights else []
    except ValueError as error:
        raise InputError(f"--weights {weights!r}: give numbers with commas between, such as 2,1") from error
