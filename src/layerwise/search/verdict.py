"""The verdict of a search: use the layers that it chose, or keep the last layer.

The best of thousands of sets on a few hundred pairs is often worse than the last layer on others. So the chosen layers
are recommended only if the 95 % interval of their gain on unseen pairs lies above 0 and its p-value is below 0.05.
`search`, `analyze`, `report`, `demo` and all code that saves a model use this verdict.
"""

from dataclasses import dataclass
from math import isnan
from typing import Any

from layerwise.search.choose import Choice
from layerwise.search.select import Gain

FEW_PAIRS = 100  # with fewer pairs that choose, the order of the best sets is little more than chance
_POINTS = 100  # correlations and rates are shown times 100


@dataclass(frozen=True, repr=False)
class Verdict:
    """Which layers to use.

    Args:
        chosen: The best set by the dev rows.
        baseline: The default without evidence: the last layer, or the highest one that the search may use.
        gain: The gain of the chosen set over the baseline on the test rows.
        rows: The total number of rows that chose and reported.
        unit: The unit of the rows, such as "pairs".
        is_last: Whether the baseline is the encoder's last layer.
        may_keep: Whether the space of the search allows the baseline; if not, the chosen set is used in any case.
        against_last: The gain of the recommended layers over the encoder's last layer, if that is not the baseline.

    >>> from layerwise.mixes import Mean
    >>> chosen, last = Choice(Mean.of(2, 6), 0.81, 0.795), Choice(Mean.of(6), 0.80, 0.802)
    >>> print(Verdict(chosen, last, Gain(-0.007, -0.032, 0.02, 0.6), 300))
    Keep the last layer. No combination is reliably better on your 300 pairs (best found −0.7, 95 % −3.2 to +2.0).
    """

    chosen: Choice
    baseline: Choice
    gain: Gain
    rows: int
    unit: str = "pairs"
    is_last: bool = True
    may_keep: bool = True
    against_last: Gain | None = None

    @property
    def is_gain(self) -> bool:
        """Whether the chosen layers are reliably better than the baseline."""
        if self.baseline.test is not None and isnan(self.baseline.test):  # constant, so that anything else is better
            return self.chosen.test is not None and not isnan(self.chosen.test)
        return self.gain.is_sure and self.gain.low > 0

    @property
    def use(self) -> Choice:
        """The recommended layers: the chosen ones if they are reliably better, else the baseline."""
        return self.chosen if self.is_gain or not self.may_keep else self.baseline

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "use": str(self.use.mix),
            "keep_last_layer": self.use is not self.chosen and self.is_last,
            "reliable_gain": self.is_gain,
            "text": str(self),
        }

    def __repr__(self) -> str:
        return f"Verdict({str(self)!r})"

    def __str__(self) -> str:
        return self._advice if self.against_last is None else f"{self._advice} {_against_last(self.against_last)}"

    @property
    def _advice(self) -> str:
        baseline = "the last layer" if self.is_last else f"layer {self.baseline.mix}"
        if self.is_gain:
            return f"Use {name_layers(self.chosen)}: {gain_in_words(self.gain)} over {baseline} on unseen {self.unit}."
        if self.chosen.mix == self.baseline.mix:
            best = "it is the best found" if self.is_last else "of what the search may use it is the best"
            return f"Keep {baseline}: {best} on your {self.rows:,} {self.unit}."
        gain = f"best found {points(self.gain.mean)}, 95 % {points(self.gain.low)} to {points(self.gain.high)}"
        if self.may_keep:
            return f"Keep {baseline}. No combination is reliably better on your {self.rows:,} {self.unit} ({gain})."
        return (
            f"Use {name_layers(self.chosen)}, the best that the search may choose, although not reliably better than "
            f"{baseline} on your {self.rows:,} {self.unit} ({gain})."
        )


def few_pairs_warning(choosing: int, unit: str, candidates: str, verdict: Verdict | None = None) -> str:
    """A warning about few rows that choose, empty if there are enough; it agrees with the verdict if there is one.

    The rows that choose are few, so that another set may be as good as the best found. The gain is of other rows, whose
    interval accounts for their number.
    """
    if choosing >= FEW_PAIRS:
        return ""
    warning = (
        f"{choosing:,} {unit} choose among {candidates}: with fewer than {FEW_PAIRS}, which of the good ones is best "
        f"is little more than luck"
    )
    if verdict is None or not verdict.is_gain:
        return warning
    half = _POINTS * (verdict.gain.high - verdict.gain.low) / 2
    known = "" if isnan(half) else f", which is known only to ±{half:.1f} points"
    return f"{warning}. This does not apply to the gain over the baseline{known}"


def name_layers(choice: Choice) -> str:
    """Such as "layers 2,6 @ mean", "layer 5 @ mean", "views(5 @ mean; 9 @ last in eol; unit)" or "19 views (…)"."""
    if not choice.mix.is_plain:
        return choice.mix.in_words
    return f"layer{'s' * (len(choice.layers) > 1)} {choice.mix}"


def points(score: float) -> str:
    """A signed difference × 100, such as "−0.7"."""
    return f"{_POINTS * score:+.1f}".replace("-", "\N{MINUS SIGN}")


def _against_last(gain: Gain) -> str:
    return f"Against the last layer of the whole model: {gain_in_words(gain)}."


def gain_in_words(gain: Gain) -> str:
    """Such as "+1.4 [+0.6, +2.2] (95 %)", × 100."""
    if isnan(gain.mean):
        return "it has a score, and the baseline has none,"
    return f"{points(gain.mean)} [{points(gain.low)}, {points(gain.high)}] (95 %)"
