"""The verdict of a search: use what it chose, or keep the baseline.

The best of thousands of sets on a few hundred units is often worse than the last layer on others. So a choice is
recommended only if the 95 % interval of its gain on unseen units lies above 0 and its p-value is below 0.05. A choice
without labels has no such gain, and its verdict says so.
"""

from dataclasses import dataclass
from math import isnan
from typing import Any, Generic, Protocol, TypeVar

from layerwise.evidence.gain import Gain

FEW_UNITS = 100  # with fewer units that choose, the order of the best sets is little more than chance
_POINTS = 100  # correlations and rates are shown times 100


class Mix(Protocol):
    """What turns layers into an embedding, with its text."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Its layers."""

    @property
    def in_words(self) -> str:
        """Its text, shortened if it is long."""


class Scored(Protocol):
    """A mix with its score on the reporting units, if any report."""

    @property
    def mix(self) -> Mix:
        """The mix."""

    @property
    def test(self) -> float | None:
        """Its score on the reporting units."""


S = TypeVar("S", bound=Scored)


@dataclass(frozen=True, repr=False)
class Verdict(Generic[S]):
    """Which mix to use.

    Args:
        chosen: The best mix by the units that choose.
        baseline: The default without evidence: the last layer, or the highest one that the search may use.
        gain: The gain of the chosen mix over the baseline on unseen units; None without labels.
        units: The total number of units that chose and reported.
        unit: Their name, such as "pairs".
        is_last: Whether the baseline is the encoder's last layer.
        may_keep: Whether the space of the search allows the baseline; if not, the chosen mix is used in any case.
        against_last: The gain of the recommended mix over the encoder's last layer, if that is not the baseline.
        criterion: The names of the criteria without labels by which the mix was chosen.
        is_agreed: Whether these criteria agree on the chosen mix; otherwise the baseline is kept.
        hit_rate: How often choices by these criteria were better where labels exist, in words.
        is_graded: Whether the units that chose are graded, although none report.
    """

    chosen: S
    baseline: S
    gain: Gain | None
    units: int
    unit: str = "pairs"
    is_last: bool = True
    may_keep: bool = True
    against_last: Gain | None = None
    criterion: str = ""
    is_agreed: bool = True
    hit_rate: str = ""
    is_graded: bool = False

    @property
    def has_evidence(self) -> bool:
        """Whether the chosen mix was scored on unseen labelled units."""
        return self.gain is not None

    @property
    def is_gain(self) -> bool:
        """Whether the chosen mix is reliably better than the baseline."""
        if self.gain is None:
            return False
        if self.baseline.test is not None and isnan(self.baseline.test):  # constant, so that anything else is better
            return self.chosen.test is not None and not isnan(self.chosen.test)
        return self.gain.is_sure and self.gain.low > 0

    @property
    def use(self) -> S:
        """The recommended mix: the chosen one if it is reliably better, else the baseline."""
        is_adopted = self.is_gain if self.has_evidence else self.is_agreed
        return self.chosen if is_adopted or not self.may_keep else self.baseline

    @property
    def keeps_last(self) -> bool:
        """Whether the encoder's last layer is recommended because nothing else is reliably better."""
        return self.use is not self.chosen and self.is_last

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "use": str(self.use.mix),
            "keep_last_layer": self.keeps_last,
            "reliable_gain": self.is_gain,
            "has_evidence": self.has_evidence,
            "text": str(self),
        }

    def __repr__(self) -> str:
        return f"Verdict({str(self)!r})"

    def __str__(self) -> str:
        if self.gain is not None:
            advice = self._by_gain(self.gain)
        else:
            advice = self._by_all_units if self.is_graded else self._without_labels
        if self.against_last is None:
            return advice
        return f"{advice} Against the last layer of the whole model: {gain_in_words(self.against_last)}."

    @property
    def _baseline_name(self) -> str:
        return "the last layer" if self.is_last else f"layer {self.baseline.mix}"

    def _by_gain(self, gain: Gain) -> str:
        baseline, name = self._baseline_name, name_mix(self.chosen.mix)
        if self.is_gain:
            return f"Use {name}: {gain_in_words(gain)} over {baseline} on unseen {self.unit}."
        if self.chosen.mix == self.baseline.mix:
            best = "it is the best found" if self.is_last else "of what the search may use it is the best"
            return f"Keep {baseline}: {best} on your {self.units:,} {self.unit}."
        interval = f"best found {points(gain.mean)}, 95 % {points(gain.low)} to {points(gain.high)}"
        if self.may_keep:
            return (
                f"Keep {baseline}. No combination is reliably better on your {self.units:,} {self.unit} ({interval})."
            )
        return (
            f"Use {name}, the best that the search may choose, although not reliably better than "
            f"{baseline} on your {self.units:,} {self.unit} ({interval})."
        )

    @property
    def _by_all_units(self) -> str:
        is_kept = self.chosen.mix == self.baseline.mix
        advice = f"Keep {self._baseline_name}: it is" if is_kept else f"Use {name_mix(self.chosen.mix)},"
        return (
            f"{advice} the best on your {self.units:,} {self.unit}. All of them chose, so that none report what it "
            f"gains: score it on others, or give dev."
        )

    @property
    def _without_labels(self) -> str:
        criteria = f" ({self.criterion})" if self.criterion else ""
        if self.use is not self.chosen:
            advice = f"Keep {self._baseline_name}. The criteria without labels{criteria} do not agree on a better set."
        elif self.chosen.mix == self.baseline.mix:
            advice = f"Keep {self._baseline_name}: it is the best found without labels{criteria}."
        else:
            advice = f"Use {name_mix(self.chosen.mix)}, chosen without labels{criteria}."
        hit_rate = f" {self.hit_rate.rstrip('.')}." if self.hit_rate else ""
        return (
            f"{advice} No score stands behind this: nothing was graded.{hit_rate} {FEW_UNITS} or more graded "
            f"{self.unit} would tell."
        )


def few_units_warning(choosing: int, unit: str, candidates: str, verdict: "Verdict[Any] | None" = None) -> str:
    """A warning about few units that choose, empty if there are enough; it agrees with the verdict if there is one.

    The units that choose are few, so that another set may be as good as the best found. The gain is of other units,
    whose interval accounts for their number.
    """
    if choosing >= FEW_UNITS:
        return ""
    warning = (
        f"{choosing:,} {unit} choose among {candidates}: with fewer than {FEW_UNITS}, which of the good ones is best "
        f"is little more than luck"
    )
    if verdict is None or verdict.gain is None or not verdict.is_gain:
        return warning
    half = _POINTS * (verdict.gain.high - verdict.gain.low) / 2
    known = "" if isnan(half) else f", which is known only to ±{half:.1f} points"
    return f"{warning}. This does not apply to the gain over the baseline{known}"


def name_mix(mix: Mix) -> str:
    """Such as "layers 2,6 @ mean", "layer 5 @ mean", "views(5 @ mean; 9 @ last in eol; unit)" or "19 views (…)"."""
    return mix.in_words if str(mix)[:1].isalpha() else f"layer{'s' * (len(mix.layers) > 1)} {mix}"


def points(score: float) -> str:
    """A signed difference × 100, such as "−0.7"."""
    return f"{_POINTS * score:+.1f}".replace("-", "\N{MINUS SIGN}")


def gain_in_words(gain: Gain) -> str:
    """Such as "+1.4 [+0.6, +2.2] (95 %)", × 100."""
    if isnan(gain.mean):
        return "it has a score, and the baseline has none,"
    return f"{points(gain.mean)} [{points(gain.low)}, {points(gain.high)}] (95 %)"
