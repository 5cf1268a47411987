"""The weights of an attention over layers, by layer and by the length of the sentence (LayerAttPooler, figure 3)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise import plots
from layerwise.encoder import SentenceTokenizer
from layerwise.errors import InputError, ModelError
from layerwise.measures.measure import Figure, Measure, MeasureValue, Row, Values, one_each
from layerwise.measures.model_on_pairs import ModelOnPairs
from layerwise.mixes import Attention

_BATCH = 2048  # sentences at once


@dataclass(frozen=True, eq=False)
class LengthGroup:
    """Sentences of `shortest` to `longest` tokens, and the mean of their weights: (layers,)"""

    shortest: int
    longest: int
    sentences: int
    mean: NDArray[np.float64]

    @property
    def label(self) -> str:
        """Format a group, such as "5-9 tokens" or "5 tokens"."""
        longer = f"-{self.longest}" if self.longest > self.shortest else ""
        return f"{self.shortest}{longer} tokens"


@dataclass(frozen=True, eq=False)
class AttentionWeights(MeasureValue):
    """The weight of each layer: by sentence (texts, layers), in the mean (layers,), and by sentence length.

    The weights of a sentence add up to 1. `groups` go from the shortest sentences to the longest.
    """

    mix: str
    texts: tuple[str, ...]
    tokens: NDArray[np.int64]
    weights: NDArray[np.float64]
    groups: tuple[LengthGroup, ...]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Over all sentences: (layers,)"""
        mean: NDArray[np.float64] = self.weights.mean(axis=0)
        return mean

    def rows(self) -> list[Row]:
        """Return a row per layer: the mean over all sentences, then over each group of lengths."""
        columns = {"all sentences": self.mean} | {group.label: group.mean for group in self.groups}
        return [
            {"layer": layer} | {name: float(column[layer]) for name, column in columns.items()}
            for layer in range(self.weights.shape[1])
        ]


def measure_attention(subject: ModelOnPairs, *, groups: int = 4) -> AttentionWeights:
    """Compute the weights of a LayerAttPooler model, averaged over its queries, for the unique texts.

    `groups` are quantiles of the sentences' lengths in tokens; fewer where many sentences have the same length.
    """
    mix = subject.model.mix
    if not isinstance(mix, Attention):
        raise ModelError(
            f"{subject.name}: its mix {mix} has no attention over layers; train one with `layerwise train` and an "
            "attention(...) as the model's pooler"
        )
    if groups < 1:
        raise InputError(f"{groups} groups of lengths are not possible; give 1 or more")
    encoder = subject.model.encoder
    lengths = SentenceTokenizer(encoder.tokenizer, max_length=encoder.max_length)(subject.texts).lengths
    weights = _weights(subject, mix)
    texts = tuple(subject.pairs.texts)
    return AttentionWeights(str(mix), texts, lengths, weights, _by_length(lengths, weights, groups))


@torch.inference_mode()
def _weights(subject: ModelOnPairs, mix: Attention) -> NDArray[np.float64]:
    """(texts, layers), some texts at a time"""
    device, batches = subject.model.encoder.device, []
    for start in range(0, len(subject.texts), _BATCH):
        rows = slice(start, start + _BATCH)
        queries, values = (torch.tensor(subject.pooled(name)[rows]).to(device) for name in (mix.queries, mix.values))
        batches.append(mix.fitted.weights(queries, values).mean(dim=1).double().cpu().numpy())
    return np.concatenate(batches)


def _by_length(lengths: NDArray[np.int64], weights: NDArray[np.float64], groups: int) -> tuple[LengthGroup, ...]:
    edges = np.unique(np.quantile(lengths, np.arange(1, groups + 1) / groups, method="inverted_cdf"))
    group_of = np.searchsorted(edges, lengths)
    masks = [group_of == number for number in range(len(edges))]
    return tuple(
        LengthGroup(int(lengths[rows].min()), int(lengths[rows].max()), int(rows.sum()), weights[rows].mean(axis=0))
        for rows in masks
    )


def _where_the_model_attends(subject: ModelOnPairs) -> dict[str, Any] | None:
    return {} if subject.model.mix.is_learned else None


def _plot(values: Values[AttentionWeights], theme: "plots.Theme") -> "plots.Drawing":
    """All sentences, the shortest and the longest; the means of several models."""
    if len(values) > 1:
        return plots.attention_weights(weights={name: value.mean for name, value in values.items()}, theme=theme)
    (value,) = values.values()
    ends = (value.groups[0], value.groups[-1]) if len(value.groups) > 1 else ()
    weights = {"all": value.mean} | {group.label: group.mean for group in ends}
    return plots.attention_weights(weights=weights, theme=theme)


MEASURE = Measure(
    "attention",
    "Attention over layers",
    "How much of each layer a LayerAttPooler takes: all layers alike says that it is no more than their mean.",
    measure_attention,
    figures=(
        Figure(
            _plot,
            title="Weight of each layer",
            reading="How much of each layer the pooler takes, for the shortest and the longest quarter of the "
            "sentences; on the dotted level all layers weigh the same.",
            section="attention",
            groups=one_each,
        ),
    ),
    in_report=_where_the_model_attends,
)
