"""Named protocols of scoring, with their settings."""

from dataclasses import asdict, dataclass, field
from typing import Any

from layerwise.data import ROLES, Task
from layerwise.errors import InputError
from layerwise.registry import check_known

AGGREGATIONS = ("all", "mean", "wmean")
_FEWEST_PER_LIST = 39  # vectors, for the centre of a list to be meaningful: FAISS's limit
PROTOCOLS = {
    "senteval": "STS on the test split; classes by logistic regression, its L2 chosen by SentEval's folds or dev rows",
    "senteval-mlp": "as senteval, classes by SentEval's perceptron of 50 hidden units",
    "lc": "BERT-LC's: all rows of an STS set, 5 times 350 random pairs choose and the rest report; classes by 10 "
    "random splits 85/15 and logistic regression with C = 10",
}


@dataclass(frozen=True)
class SearchSetting:
    """The settings of corpus search.

    Args:
        depth: How many passages are retrieved, the 10 of MRR@10.
        lists: FAISS's nlist; fewer where the corpus is too small for them.
        probes: FAISS's nprobe: how many lists are searched for a query.
        seed: Of the clustering.
    """

    depth: int = 10
    lists: int = 1024
    probes: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("depth", "lists", "probes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be 1 or more")

    def lists_of(self, corpus: int) -> int:
        """Return the number of inverted lists for a corpus of this size."""
        return min(self.lists, max(1, corpus // _FEWEST_PER_LIST))


@dataclass(frozen=True)
class Protocol:
    """Everything that determines a score besides model and data.

    Args:
        name: One of `PROTOCOLS`.
        aggregation: Which of the subsets' averages is the headline of STS: "all", "mean" or "wmean".
        split: Which rows of STS are scored: "test", or "dev" while something is being chosen.
        seeds: Of everything random: folds, splits, the perceptron; what is not random is computed once. By default 1111
            (SentEval's) to 1113; for "lc", which has several splits anyway, 0.
        search: How a corpus is searched.
    """

    name: str = "senteval"
    aggregation: str = "all"
    split: str = "test"
    seeds: tuple[int, ...] = ()
    search: SearchSetting = field(default_factory=SearchSetting)

    def __post_init__(self) -> None:
        check_known(self.name, PROTOCOLS, "protocol")
        check_known(self.aggregation, AGGREGATIONS, "aggregation")
        check_known(self.split, ROLES, "split")
        if not self.seeds:
            object.__setattr__(self, "seeds", (0,) if self.name == "lc" else (1111, 1112, 1113))
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds are {self.seeds}; give one or more different numbers from 0")

    def facts(self) -> dict[str, Any]:
        """For the stamp."""
        return asdict(self) | {"seeds": list(self.seeds)}

    def is_random(self, task: Task) -> bool:
        """Whether seeds matter to classes: nothing is random in a regression whose setting is chosen on dev rows."""
        return self.name != "senteval" or "dev" not in task.splits

    def check_mixable(self, task: Task) -> None:
        """Raise for a task whose splits must not be mixed."""
        if not task.mixable:
            raise InputError(
                f"task {task.name!r} cannot be split at random, as the protocol {self.name!r} does: {task.note}; "
                f"leave it out, or use another protocol"
            )
