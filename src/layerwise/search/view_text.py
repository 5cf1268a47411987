"""Views chosen without labels: several criteria must agree that a set is better than the last layer.

Each criterion makes pairs of the user's text that should be alike, and unlike ones (see `alike`), and chooses the set
that keeps the two kinds apart best. A criterion can be misled: words repeated are told apart best by layers that know
words and little else. So a set is used only where every criterion has it no worse than the last layer, and most of
them better; otherwise the last layer stays.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.mixes import LayerViews
from layerwise.model import LayerModel
from layerwise.postprocess import LAYERS, FittedOn
from layerwise.search.alike import ALIKE, alike_and_unlike
from layerwise.search.graded_pairs import ViewMix
from layerwise.search.run import Watch, chosen_model, kept_model, model_notes, unwatched
from layerwise.search.view_cost import prices_of
from layerwise.search.view_run import CENTRES, TimedViews
from layerwise.search.view_search import ViewSearch
from layerwise.texts import unique_texts

CRITERIA = tuple(ALIKE)
_SENTENCES = 600  # of the text, that make pairs
_LEVEL = 1e-6  # of a separation: less is rounding


@dataclass(frozen=True)
class Proposal:
    """The set that one criterion chose, and how far it keeps alike and unlike pairs apart by each criterion."""

    criterion: str
    mix: ViewMix
    separations: Mapping[str, float]

    def gains(self, last: Mapping[str, float]) -> list[float]:
        """By each criterion, as shares of what the last layer has, or of 1 where that keeps nothing apart."""
        return [
            (value - last[name]) / (last[name] if last[name] > 0 else 1.0) for name, value in self.separations.items()
        ]

    def is_agreed(self, last: Mapping[str, float]) -> bool:
        """Whether every criterion has it no worse than the last layer, and more than half of them better."""
        gains = np.array(self.gains(last))
        return bool((gains >= -_LEVEL).all() and (gains > _LEVEL).sum() > len(gains) / 2)


@dataclass(frozen=True)
class ViewTextResult:
    """What criteria without labels chose, what they make of the last layer, and how long things took."""

    searched: LayerModel
    texts: list[str]
    proposals: tuple[Proposal, ...]
    last_mix: ViewMix
    last: Mapping[str, float]
    seconds: dict[str, float]
    prompt: str
    notes: tuple[str, ...]

    @property
    def agreed(self) -> Proposal | None:
        """The proposal that the criteria agree on, the best by their mean gain; None where they do not."""
        agreed = [one for one in self.proposals if one.is_agreed(self.last)]
        return max(agreed, key=lambda one: float(np.mean(one.gains(self.last))), default=None)

    @property
    def model(self) -> LayerModel:
        """The model of the agreed views, or of the last layer where there are none."""
        agreed = self.agreed
        if agreed is None:
            return kept_model(self.searched, self.last_mix, f"kept by a search without labels: {self}")
        record = FittedOn.of(self.texts, source=f"text, by {', '.join(self.last)}", what=LAYERS)
        model = chosen_model(self.searched, agreed.mix, str(self), chosen_on=record)
        if not isinstance(agreed.mix, LayerViews) or agreed.mix.components is None:
            return model
        return model.replaced(fitted_on=(*model.fitted_on, record.named(CENTRES)))

    @property
    def warnings(self) -> list[str]:
        """What a careful reader should know."""
        return [*self.notes, "nothing was graded, so there is no score; that needs 100 or more graded pairs"]

    def as_dict(self) -> dict[str, Any]:
        """For JSON. `separation`: how many standard deviations alike and unlike sentences lie apart."""
        agreed = self.agreed
        return {
            "use": str(self.last_mix if agreed is None else agreed.mix),
            "agreed": agreed.criterion if agreed else None,
            "proposals": [
                {
                    "criterion": one.criterion,
                    "mix": str(one.mix),
                    "separation": dict(one.separations),
                    "agreed": one.is_agreed(self.last),
                }
                for one in self.proposals
            ],
            "last": {"mix": str(self.last_mix), "separation": dict(self.last)},
            "seconds": self.seconds,
            "prompts": [self.prompt] * 2,
            "warnings": self.warnings,
        }

    def __str__(self) -> str:
        criteria, agreed = ", ".join(self.last), self.agreed
        if agreed is None:
            return f"Keep the last layer. The criteria without labels ({criteria}) do not agree on a better set."
        return f"Use {agreed.mix}, chosen by {agreed.criterion}. No criterion without labels ({criteria}) has it worse."


def search_view_text(
    model: LayerModel,
    texts: Sequence[str],
    search: ViewSearch,
    watch: Watch = unwatched,
    *,
    criteria: Sequence[str] = CRITERIA,
    show_progress_bar: bool = False,
) -> ViewTextResult:
    """Choose views by text alone.

    Args:
        model: The model; the last layer by its own pooling is what views are compared with.
        texts: Sentences of the user's; for neighbours in the order of the text.
        search: What to search; its metric, dev and splits are not used, for nothing is graded, and no view counts
            against others, for it is not known what that is worth here.
        watch: Shows a progress bar of the sets.
        criteria: Of `ALIKE`, by which text is alike.
        show_progress_bar: Show one of the sentences.
    """
    began, prompt = time.perf_counter(), model.prompt()
    encode = TimedViews(model, prompt, show_progress_bar)
    own, *_ = model.mix.poolings
    search.check_width(model.encoder.width)
    prices = prices_of(model.encoder, [*search.poolings, own], [prompt + text for text in texts])
    searches: dict[str, ViewSearch] = {}
    with watch("Searching", None) as progress:
        for criterion in criteria:
            pairs = alike_and_unlike(criterion, _some(texts, criterion), seed=search.seed)
            options = search.get_params() | {"metric": "separation", "dev": None, "parts": None, "splits": 1}
            one = ViewSearch(**options | {"against": False, "progress": progress})
            searches[criterion] = one.fit(encode, *pairs, prices=prices, own=own)
    last_mix = next(iter(searches.values())).last_.mix
    proposals = tuple(
        Proposal(name, one.best_.mix, {other: which.score(one.best_.mix) for other, which in searches.items()})
        for name, one in searches.items()
    )
    last = {name: one.score(last_mix) for name, one in searches.items()}
    seconds = encode.seconds_since(began)
    notes = model_notes(model, search)
    return ViewTextResult(model, unique_texts(texts)[0], proposals, last_mix, last, seconds, prompt, notes)


def _some(texts: Sequence[str], criterion: str) -> list[str]:
    """At most so many of the texts, spread over all; for neighbours the first ones, which follow each other."""
    if len(texts) <= _SENTENCES or criterion == "neighbours":
        return list(texts[: _SENTENCES + 1])
    return [texts[n] for n in np.linspace(0, len(texts) - 1, _SENTENCES).astype(int)]
