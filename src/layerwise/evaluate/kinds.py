"""How the protocol applies to each kind of task: scored rows, relevant settings, headline figure.

The scores themselves are made in `layerwise.evaluate.problems`: what decides a stored result needs no torch.
"""

from collections.abc import Collection
from typing import Any, ClassVar

from layerwise.data import Task
from layerwise.errors import InputError
from layerwise.evaluate.protocol import Protocol
from layerwise.registry import Registry


class Kind:
    """A kind with one protocol, mteb's: its test rows are scored regardless of the settings of other kinds."""

    searchable: ClassVar[bool] = False  # whether layers can be searched split by split, by the protocol "lc"

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:  # noqa: ARG002 - other kinds need it
        """Return everything that determines a task's outcome besides its rows and the model."""
        return {"protocol": "mteb", "metric": task.metric}

    def scored(self, task: Task, roles: Collection[str], protocol: Protocol) -> str | None:
        """Return the role of the scored rows; None for all rows."""
        if protocol.split != "test":
            raise InputError(f"--split {protocol.split} is for STS; task {task.name!r} is scored on its test rows")
        return _present("test", task, roles)

    def split(self, task: Task, protocol: Protocol) -> str:  # noqa: ARG002 - other kinds need it
        """Return the description of the rows for the stamp."""
        return "test" if task.splits else "all rows"

    def headline(self, task: Task, protocol: Protocol) -> str:  # noqa: ARG002 - other kinds need it
        """The name of the headline figure."""
        return task.metric

    def aggregation(self, protocol: Protocol) -> str | None:  # noqa: ARG002 - other kinds need it
        """Return how subsets are averaged, for the stamp; None if there is only one way."""
        return None


class GradedPairs(Kind):
    """STS, by the protocol's split and average of subsets."""

    searchable = True

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:  # noqa: ARG002 - as Kind
        """The split; by "lc" the seeds of its random splits."""
        if protocol.name == "lc":
            return {"protocol": "lc", "seeds": list(protocol.seeds)}
        return {"protocol": "sts", "split": protocol.split}

    def scored(self, task: Task, roles: Collection[str], protocol: Protocol) -> str | None:
        """The protocol's split, or all rows."""
        if protocol.name == "lc":
            _check_mixable(task)
            return None
        return _present(protocol.split, task, roles)

    def split(self, task: Task, protocol: Protocol) -> str:
        """As the protocol says."""
        if protocol.name == "lc":
            return "random splits of all rows"
        return protocol.split if task.splits else "all rows"

    def headline(self, task: Task, protocol: Protocol) -> str:
        """With the name of the average, where it is not over all pairs."""
        plain = protocol.aggregation == "all" or protocol.name == "lc"
        return task.metric if plain else f"{task.metric}_{protocol.aggregation}"

    def aggregation(self, protocol: Protocol) -> str | None:
        """The protocol's."""
        return None if protocol.name == "lc" else protocol.aggregation


class Classes(Kind):
    """Classification by a classifier on fixed embeddings, under SentEval's protocol or BERT-LC's."""

    searchable = True

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:
        """The protocol, and the seeds where something is random."""
        seeds = {"seeds": list(protocol.seeds)} if is_random(task, protocol) else {}
        return {"protocol": protocol.name, **seeds}

    def scored(self, task: Task, roles: Collection[str], protocol: Protocol) -> str | None:
        """The test rows, or all where they are folded or split at random."""
        if protocol.name == "lc":
            if task.metric == "f1":
                raise InputError(
                    f"task {task.name!r}: the protocol 'lc' gives accuracies, not f1; use another protocol"
                )
            _check_mixable(task)
            return None
        if protocol.split == "test" and task.splits and "train" not in roles:
            raise InputError(f"task {task.name!r} has no train rows; it has {', '.join(roles)}")
        return super().scored(task, roles, protocol)

    def split(self, task: Task, protocol: Protocol) -> str:
        """As the protocol says."""
        if protocol.name == "lc":
            return "random splits of all rows"
        return "test" if task.splits else "folds of all rows"


class FewShots(Kind):
    """Classes from a few rows of each."""

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:
        """With the number of rows."""
        return super().settings(task, protocol) | {"shots": task.shots}


class Search(Kind):
    """Retrieval: in the task's corpus by mteb's protocol, otherwise among the rows' passages or duplicates (FAISS)."""

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:
        """How the corpus is searched."""
        if task.corpus is not None:
            return super().settings(task, protocol)
        metric = {} if task.metric == "mrr@10" else {"metric": task.metric}
        return {"protocol": "search", "search": protocol.facts()["search"], **metric}

    def headline(self, task: Task, protocol: Protocol) -> str:
        """At the depth of the search."""
        return task.metric if task.corpus is not None else f"{without_depth(task.metric)}@{protocol.search.depth}"


EVALUATED: Registry[Kind] = Registry("kind")
EVALUATED.register("sts")(GradedPairs())
EVALUATED.register("classification")(Classes())
EVALUATED.register("retrieval")(Search())
EVALUATED.register("reranking")(Kind())
EVALUATED.register("clustering")(Kind())
EVALUATED.register("fewshot")(FewShots())
EVALUATED.register("bitext")(Kind())
EVALUATED.register("pair-classification")(Kind())


def kind_of(task: Task) -> Kind:
    """The evaluation of a kind of task."""
    return EVALUATED[task.kind]


def is_random(task: Task, protocol: Protocol) -> bool:
    """Whether seeds matter to classes: nothing is random in a regression whose setting is chosen on dev rows."""
    return protocol.name != "senteval" or "dev" not in task.splits


def without_depth(metric: str) -> str:
    """The metric without its depth: mrr@10 is mrr."""
    return metric.partition("@")[0]


def _check_mixable(task: Task) -> None:
    """Raise for a task whose splits must not be mixed."""
    if not task.mixable:
        raise InputError(
            f"task {task.name!r} cannot be split at random, as the protocol 'lc' does: {task.note}; "
            f"leave it out, or use another protocol"
        )


def _present(role: str, task: Task, roles: Collection[str]) -> str:
    if role not in roles:
        raise InputError(f"task {task.name!r} has no {role} rows; it has {', '.join(roles)}")
    return role
