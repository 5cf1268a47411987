"""A selection as plain values: the JSON of a search, and its schema."""

from collections.abc import Mapping
from math import isnan
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

from layerwise.evidence import Gain
from layerwise.search.scored import Scored
from layerwise.search.unlabelled import Criteria


def _not_nan(value: Any) -> Any:
    return None if isinstance(value, float) and isnan(value) else value


Number = Annotated[float | None, BeforeValidator(_not_nan)]  # None where a score does not exist


class Facts(BaseModel):
    """Plain values that do not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)


class VerdictFacts(Facts):
    """Which mix to use: its text, whether the last layer is kept, and whether a score stands behind it."""

    use: str
    keep_last_layer: bool
    reliable_gain: bool
    has_evidence: bool
    text: str


class GainFacts(Facts):
    """A gain on unseen units with its 95 % interval and p-value, in the unit of the metric."""

    mean: Number
    low: Number
    high: Number
    p_value: Number


class CostFacts(Facts):
    """What an embedding costs: passes through the model, blocks and tokens, and work relative to the last layer."""

    forward_passes: int
    blocks: int
    tokens: float
    passes: float
    work: float


class ScoredFacts(Facts):
    """A mix with its score on the choosing units (`dev`) and on others (`test`)."""

    mix: str
    layers: tuple[int, ...]
    pooling: str
    dev: Number
    test: Number
    blocks: int
    cost: CostFacts | None

    @classmethod
    def of(cls, scored: Scored) -> Self:
        """From a scored mix."""
        cost = None if scored.cost is None else CostFacts.model_validate(scored.cost.as_dict())
        return cls(
            mix=str(scored.mix),
            layers=scored.layers,
            pooling=scored.pooling,
            dev=scored.dev,
            test=scored.test,
            blocks=scored.blocks,
            cost=cost,
        )


class CheaperFacts(Facts):
    """A mix of fewer blocks than the recommended one, and its gain over it."""

    mix: str
    blocks: int
    against: GainFacts

    @classmethod
    def of(cls, scored: Scored, against: Gain) -> Self:
        """From a scored mix and its gain over the recommended one."""
        return cls(mix=str(scored.mix), blocks=scored.blocks, against=GainFacts(**vars(against)))


class StabilityFacts(Facts):
    """The share of halves of the units that choose each view, token pooling and layer; how far halves agree."""

    views: dict[str, float]
    poolings: dict[str, float]
    layers: dict[int, float]
    agreement: float


class ProposalFacts(Facts):
    """What a criterion without labels proposes; separations are in standard deviations, by criterion."""

    criterion: str
    mix: str
    separation: dict[str, Number]
    agreed: bool


class CriteriaFacts(Facts):
    """The proposals of criteria without labels, and the last layer's separation by each."""

    name: str
    agreed: str | None
    proposals: tuple[ProposalFacts, ...]
    last: dict[str, Number]

    @classmethod
    def of(cls, criteria: Criteria) -> Self:
        """From what the criteria propose."""
        proposals = tuple(
            ProposalFacts(
                criterion=one.criterion,
                mix=str(one.mix),
                separation=dict(one.separations),
                agreed=one.is_agreed(criteria.last),
            )
            for one in criteria.proposals
        )
        agreed = criteria.agreed.criterion if criteria.agreed else None
        return cls(name=criteria.name, agreed=agreed, proposals=proposals, last=dict(criteria.last))


class TaskFacts(Facts):
    """One of several tasks: its metric, its weight in the mean, and how many of its units choose and report."""

    task: str
    metric: str
    weight: float
    unit: str
    choosing: int
    reporting: int


class TaskChoiceFacts(Facts):
    """A mix on every task: its scores on unseen units, and what it loses there against the task's own choice."""

    name: str
    mix: str
    unseen: tuple[Number, ...]
    regrets: tuple[Number, ...]
    mean: Number
    mean_regret: Number


class TasksFacts(Facts):
    """Several tasks, and what the choice of each, of all and the last layer are worth on each of them."""

    tasks: tuple[TaskFacts, ...]
    choices: tuple[TaskChoiceFacts, ...]


class SplitFacts(Facts):
    """What a split chose, and its scores beside the last layer's."""

    mix: str
    dev: Number
    test: Number
    last_dev: Number
    last_test: Number


class ProtocolFacts(Facts):
    """How the scores were made."""

    metric: str
    unit: str
    space: str
    choosing: int
    reporting: int
    left_out: int
    near_copies: int
    seen_sentences: int
    splits: int
    seed: int
    options: dict[str, Any]


class SelectionFacts(Facts):
    """What `layerwise search --json` prints. Scores are raw values of the metric: correlations from -1 to 1."""

    verdict: VerdictFacts
    chosen: ScoredFacts
    baseline: ScoredFacts
    last: ScoredFacts
    gain: GainFacts | None
    candidates: str
    front: tuple[ScoredFacts, ...]
    cheaper: CheaperFacts | None
    stability: StabilityFacts | None
    singles: dict[str, tuple[Number, ...]] | None
    fitted_on: str | None
    criteria: CriteriaFacts | None
    tasks: TasksFacts | None
    unlabelled: ScoredFacts | None
    splits: tuple[SplitFacts, ...]
    protocol: ProtocolFacts
    prompts: tuple[str, str]
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]
    saved: str | None = None
