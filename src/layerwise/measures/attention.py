"""Which layers an attention over layers takes, sentence by sentence, short against long (LayerAttPooler, figure 3)."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.encoder.tokens import SentenceTokenizer
from layerwise.errors import InputError, ModelError
from layerwise.measures.material import Material
from layerwise.measures.measure import Measure, Measured, Row, add_measure
from layerwise.mixes import LayerAttention

_ROWS = 2048  # sentences at once


@dataclass(frozen=True, eq=False)
class LengthGroup:
    """Sentences of `shortest` to `longest` tokens, and the mean of their weights: (layers,)"""

    shortest: int
    longest: int
    sentences: int
    mean: NDArray[np.float64]

    @property
    def label(self) -> str:
        """Such as "5-9 tokens", or "5 tokens"."""
        longer = f"-{self.longest}" if self.longest > self.shortest else ""
        return f"{self.shortest}{longer} tokens"


@dataclass(frozen=True, eq=False)
class LayerWeightsTaken(Measured):
    """How much of each layer is taken: by sentence (texts, layers), in the mean (layers,), and by sentence length.

    Each sentence's weights add up to 1. `groups` go from the shortest sentences to the longest.
    """

    mix: str
    texts: tuple[str, ...]
    tokens: NDArray[np.int64]
    weights: NDArray[np.float64]
    groups: tuple[LengthGroup, ...]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Over all sentences: (layers,)"""
        found: NDArray[np.float64] = self.weights.mean(axis=0)
        return found

    def rows(self) -> list[Row]:
        """A row for each layer: the mean over all sentences, then over each group of lengths."""
        columns = {"all sentences": self.mean} | {group.label: group.mean for group in self.groups}
        return [
            {"layer": layer} | {name: float(column[layer]) for name, column in columns.items()}
            for layer in range(self.weights.shape[1])
        ]


def attention_over_layers(material: Material, *, groups: int = 4) -> LayerWeightsTaken:
    """The weights of a LayerAttPooler model, the mean over its queries, for every different text.

    `groups` are quantiles of the sentences' lengths in tokens; fewer where many sentences have one length.
    """
    mix = material.model.mix
    if not isinstance(mix, LayerAttention):
        raise ModelError(
            f"{material.name}: its mix {mix} has no attention over layers; train one with `layerwise train` and an "
            "attention(...) as the model's pooler"
        )
    if groups < 1:
        raise InputError(f"{groups} groups of lengths are not possible; give 1 or more")
    encoder = material.model.encoder
    ids = SentenceTokenizer(encoder.tokenizer, max_length=encoder.max_length)(material.texts).ids
    lengths = np.array([len(row) for row in ids], dtype=np.int64)
    weights = _weights(material, mix)
    texts = tuple(dict.fromkeys([*material.pairs.left, *material.pairs.right]))
    return LayerWeightsTaken(str(mix), texts, lengths, weights, _by_length(lengths, weights, groups))


@torch.inference_mode()
def _weights(material: Material, mix: LayerAttention) -> NDArray[np.float64]:
    """(texts, layers), some texts at a time"""
    device, found = material.model.encoder.device, []
    for start in range(0, len(material.texts), _ROWS):
        rows = slice(start, start + _ROWS)
        queries, values = (torch.tensor(material.pooled(name)[rows]).to(device) for name in (mix.queries, mix.values))
        found.append(mix.trained.weights(queries, values).mean(dim=1).double().cpu().numpy())
    return np.concatenate(found)


def _by_length(lengths: NDArray[np.int64], weights: NDArray[np.float64], groups: int) -> tuple[LengthGroup, ...]:
    edges = np.unique(np.quantile(lengths, np.arange(1, groups + 1) / groups, method="inverted_cdf"))
    place = np.searchsorted(edges, lengths)
    own = [place == number for number in range(len(edges))]
    return tuple(
        LengthGroup(int(lengths[rows].min()), int(lengths[rows].max()), int(rows.sum()), weights[rows].mean(axis=0))
        for rows in own
    )


add_measure(
    Measure(
        "attention",
        "Attention over layers",
        "How much of each layer a LayerAttPooler takes: all layers alike says that it is no more than their mean.",
        attention_over_layers,
        options=("groups",),
    )
)
