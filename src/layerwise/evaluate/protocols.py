"""How scores are made: a named protocol with its settings, part of every stamp."""

from dataclasses import asdict, dataclass, field
from typing import Any

from layerwise.data import ROLES
from layerwise.errors import InputError
from layerwise.evaluate.retrieval import SearchSetting
from layerwise.evaluate.sts import AGGREGATIONS

PROTOCOLS = {
    "senteval": "STS on the test split; classes by logistic regression, its L2 chosen by SentEval's folds or dev rows",
    "senteval-mlp": "as senteval, classes by SentEval's perceptron of 50 hidden units",
    "lc": "BERT-LC's: all rows of an STS set, 5 times 350 random pairs choose and the rest report; classes by 10 "
    "random splits 85/15 and logistic regression with C = 10",
}


@dataclass(frozen=True)
class Protocol:
    """What decides a score besides model and data.

    Args:
        name: One of `PROTOCOLS`.
        aggregation: Which of the subsets' averages is the headline of STS: "all", "mean" or "wmean".
        split: Which rows of STS are scored: "test", or "dev" while something is being chosen.
        seeds: Of everything random: folds, splits, the perceptron. What is not random is done once. Without them 1111
            (SentEval's own) to 1113; for "lc", whose splits are many already, 0.
        search: How a corpus is searched.
    """

    name: str = "senteval"
    aggregation: str = "all"
    split: str = "test"
    seeds: tuple[int, ...] = ()
    search: SearchSetting = field(default_factory=SearchSetting)

    def __post_init__(self) -> None:
        if self.name not in PROTOCOLS:
            raise InputError(f"Unknown protocol {self.name!r}. Known: {', '.join(PROTOCOLS)}")
        if self.aggregation not in AGGREGATIONS:
            raise InputError(f"Unknown aggregation {self.aggregation!r}. Known: {', '.join(AGGREGATIONS)}")
        if self.split not in ROLES:
            raise InputError(f"Unknown split {self.split!r}. Known: {', '.join(ROLES)}")
        if not self.seeds:
            object.__setattr__(self, "seeds", (0,) if self.name == "lc" else (1111, 1112, 1113))
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds are {self.seeds}; give one or more different numbers from 0")

    def facts(self) -> dict[str, Any]:
        """For the stamp."""
        return asdict(self) | {"seeds": list(self.seeds)}
