"""Choose views without labels: several criteria must agree that a set is better than the last layer.

Each criterion builds similar and dissimilar pairs from the user's text (see `alike`) and chooses the set that separates
the two best. A single criterion can mislead: lexical layers, for example, are best at recognising repeated words. So a
set is used only if no criterion scores it worse than the last layer and more than half of them score it better;
otherwise the last layer stays.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.mixes import Mean
from layerwise.model import LayerModel
from layerwise.postprocess import LAYERS, FittedOn
from layerwise.search.alike import ALIKE, alike_and_unlike
from layerwise.search.run import Watch, chosen_model, kept_model, model_notes, unwatched
from layerwise.search.view_cost import prices_of
from layerwise.search.view_dropout import DropoutViews, dropout_metric, two_passes
from layerwise.search.view_run import CENTRES, TimedViews
from layerwise.search.view_search import ViewSearch
from layerwise.texts import unique_texts

CRITERIA = tuple(ALIKE)
DROPOUT = "dropout"  # a criterion of its own, as many models have none
_MAX_TEXTS = 600  # from which pairs are built
_TOLERANCE = 1e-6  # relative; smaller differences of separations are rounding errors


@dataclass(frozen=True)
class Proposal:
    """The set that one criterion chose, and how well it separates similar from dissimilar pairs by each criterion."""

    criterion: str
    mix: Mean
    separations: Mapping[str, float]

    def gains(self, last: Mapping[str, float]) -> list[float]:
        """The gain by each criterion, relative to the last layer's separation; absolute if that is not positive."""
        return [
            (value - last[name]) / (last[name] if last[name] > 0 else 1.0) for name, value in self.separations.items()
        ]

    def is_agreed(self, last: Mapping[str, float]) -> bool:
        """Whether no criterion scores it worse than the last layer, and more than half of them better."""
        gains = np.array(self.gains(last))
        return bool((gains >= -_TOLERANCE).all() and (gains > _TOLERANCE).sum() > len(gains) / 2)


@dataclass(frozen=True)
class ViewTextResult:
    """The proposals of criteria without labels, the last layer's separation by each, and timings."""

    searched: LayerModel
    texts: list[str]
    proposals: tuple[Proposal, ...]
    last_mix: Mean
    last: Mapping[str, float]
    seconds: dict[str, float]
    prompt: str
    notes: tuple[str, ...]

    @property
    def agreed(self) -> Proposal | None:
        """The proposal that the criteria agree on, of several the one with the best mean gain; None without one."""
        agreed = [proposal for proposal in self.proposals if proposal.is_agreed(self.last)]
        return max(agreed, key=lambda proposal: float(np.mean(proposal.gains(self.last))), default=None)

    @property
    def model(self) -> LayerModel:
        """The model of the agreed views, or of the last layer if there are none."""
        agreed = self.agreed
        if agreed is None:
            return kept_model(self.searched, self.last_mix, f"kept by a search without labels: {self}")
        record = FittedOn.of(self.texts, source=f"text, by {', '.join(self.last)}", what=LAYERS)
        model = chosen_model(self.searched, agreed.mix, str(self), chosen_on=record)
        if agreed.mix.components is None:
            return model
        return model.replaced(fitted_on=(*model.fitted_on, record.named(CENTRES)))

    @property
    def warnings(self) -> list[str]:
        """Caveats about the choice."""
        return [*self.notes, "nothing was graded, so there is no score; that needs 100 or more graded pairs"]

    def as_dict(self) -> dict[str, Any]:
        """For JSON. `separation`: the standard deviations between similar and dissimilar sentences."""
        agreed = self.agreed
        return {
            "use": str(self.last_mix if agreed is None else agreed.mix),
            "agreed": agreed.criterion if agreed else None,
            "proposals": [
                {
                    "criterion": proposal.criterion,
                    "mix": str(proposal.mix),
                    "separation": dict(proposal.separations),
                    "agreed": proposal.is_agreed(self.last),
                }
                for proposal in self.proposals
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
    """Choose views by unlabelled text.

    Args:
        model: The model. The baseline is its last layer with its own pooling.
        texts: The user's sentences; for the criterion "neighbours" in the order of the text.
        search: The search with its options. Its metric, dev and splits are not used, as nothing is graded; neither is
            `against`, which has not been evaluated without labels.
        watch: Shows a progress bar of the sets.
        criteria: Names from `ALIKE`, or "dropout" for models that have it: two passes over the same text.
        show_progress_bar: Show a progress bar of the sentences.
    """
    start, prompt = time.perf_counter(), model.prompt()
    encode = TimedViews(model, prompt, show_progress_bar)
    encode_twice = DropoutViews(model, prompt, show_progress_bar)
    baseline, *_ = model.mix.poolings
    search.check_width(model.encoder.width)
    prices = prices_of(model.encoder, [*search.poolings, baseline], [prompt + text for text in texts])
    searches: dict[str, ViewSearch] = {}
    with watch("Searching", None) as progress:
        for criterion in criteria:
            sample = _sample(texts, criterion)
            options = search.get_params() | {"metric": "separation", "dev": None, "parts": None, "splits": 1}
            options |= {"against": False, "progress": progress}
            if criterion == DROPOUT:
                pairs = two_passes(sample, seed=search.seed)
                last_layer = Mean.of(model.encoder.depth, pooling=baseline)
                metric = dropout_metric(pairs, encode_twice, last_layer, search.device)
                options |= {"metric": metric, "bags": 0}  # the guard of the metric holds for the best set only
                searches[criterion] = ViewSearch(**options).fit(encode_twice, *pairs, prices=prices, own=baseline)
            else:
                pairs = alike_and_unlike(criterion, sample, seed=search.seed)
                searches[criterion] = ViewSearch(**options).fit(encode, *pairs, prices=prices, own=baseline)
    last_mix = next(iter(searches.values())).last_.mix
    proposals = tuple(
        Proposal(name, mix, {criterion: fitted.score(mix) for criterion, fitted in searches.items()})
        for name, mix in ((name, fitted.best_.mix) for name, fitted in searches.items())
    )
    last = {name: fitted.score(last_mix) for name, fitted in searches.items()}
    encode.seconds += encode_twice.seconds
    seconds = encode.timings(start)
    notes = model_notes(model, search)
    return ViewTextResult(model, unique_texts(texts)[0], proposals, last_mix, last, seconds, prompt, notes)


def _sample(texts: Sequence[str], criterion: str) -> list[str]:
    """Evenly spaced texts, at most `_MAX_TEXTS`; for "neighbours" the first ones, which are consecutive."""
    if len(texts) <= _MAX_TEXTS or criterion == "neighbours":
        return list(texts[: _MAX_TEXTS + 1])
    return [texts[n] for n in np.linspace(0, len(texts) - 1, _MAX_TEXTS).astype(int)]
