"""Similarities between the tokens of a sentence, by layer (SSCL, figure 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise import plots
from layerwise.encoder import SentenceTokenizer, resolve_layer
from layerwise.errors import InputError
from layerwise.measures.measure import Figure, Measure, MeasureValue, Row, Values, one_each, together
from layerwise.measures.model_on_pairs import ModelOnPairs
from layerwise.measures.vectors import unit_vectors

_READABLE = 24  # tokens of the sentence that the report draws: more cannot be read on a phone


def token_cosines(states: Tensor) -> Tensor:
    """The cosine of every token of a sentence with every other (SSCL fig. 5). (t, d) -> (t, t)"""
    if states.ndim != 2 or not states.numel():
        raise InputError(f"states: the shape is {tuple(states.shape)}; expected (tokens, width), each at least 1")
    units = unit_vectors(states)
    with torch.autocast(states.device.type, enabled=False):
        return units @ units.T


@dataclass(frozen=True, eq=False)
class TokenMatrices(MeasureValue):
    """The cosines of a sentence's tokens, special ones included, in some layers: (layers, tokens, tokens)"""

    sentence: str
    tokens: tuple[str, ...]
    layers: tuple[int, ...]
    cosines: NDArray[np.float64]

    def rows(self) -> list[Row]:
        """Return a row per layer and token with its cosine to every token; columns are numbered, as words repeat."""
        names = [f"{place} {token}" for place, token in enumerate(self.tokens)]
        return [
            {"layer": layer, "token": name} | dict(zip(names, cosines, strict=True))
            for layer, matrix in zip(self.layers, self.cosines.tolist(), strict=True)
            for name, cosines in zip(names, matrix, strict=True)
        ]


def measure_token_matrices(
    subject: ModelOnPairs, sentence: str | None = None, layers: Sequence[int] | None = None
) -> TokenMatrices:
    """The cosines of a sentence's tokens in some layers; only these layers are stored, one at a time.

    Args:
        subject: The model and its pairs.
        sentence: Any text, which the model's prompt is put before; by default the first text of the pairs.
        layers: Their numbers, negative ones from the last; by default the first, the middle and the last block's.
    """
    encoder = subject.model.encoder
    depth = encoder.depth
    selected = (min(1, depth), (depth + 1) // 2, depth) if layers is None else layers
    numbers = tuple(dict.fromkeys(resolve_layer(layer, depth) for layer in selected))
    if not numbers:
        raise InputError("token matrices are of one layer at least; name one, such as -1")
    text = subject.pairs.left[0] if sentence is None else sentence
    if not text.strip():
        raise InputError("the sentence is empty; give one of two words or more")
    (ids,) = SentenceTokenizer(encoder.tokenizer, max_length=encoder.max_length)([subject.model.prompt() + text]).ids
    with torch.inference_mode():
        tokens = torch.tensor([ids], device=encoder.device)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        matrices = encoder.reader.read(inputs, set(numbers), lambda states: token_cosines(states[0]).double().cpu())
    words = tuple(encoder.tokenizer.convert_ids_to_tokens(ids))
    return TokenMatrices(text, words, numbers, torch.stack([matrices[layer] for layer in numbers]).numpy())


def _with_readable_sentence(subject: ModelOnPairs) -> dict[str, Any]:
    """The longest text that can be read as a matrix, by its words, which are a little fewer than its tokens."""
    fitting = [text for text in subject.pairs.left if 4 <= len(text.split()) <= _READABLE // 2]
    return {"sentence": max(fitting, key=lambda text: len(text.split())) if fitting else None}


def _by_tokens(values: Values[TokenMatrices]) -> list[Values[TokenMatrices]]:
    """Models share a drawing where their tokenizers split the sentence in the same way."""
    return together(values) if len({value.tokens for value in values.values()}) == 1 else one_each(values)


def _plot(values: Values[TokenMatrices], theme: "plots.Theme") -> "plots.Drawing":
    """Draw several layers of one model, or the last layer of several models."""
    first = next(iter(values.values()))
    if len(values) == 1:
        return plots.token_matrices(tokens=first.tokens, matrices=first.cosines, layers=first.layers, theme=theme)
    if len(_by_tokens(values)) > 1:
        raise InputError("the models split the sentence into different tokens; draw each by itself")
    labels = [f"{name}, layer {value.layers[-1]}" for name, value in values.items()]
    last = np.stack([value.cosines[-1] for value in values.values()])
    return plots.token_matrices(tokens=first.tokens, matrices=last, layers=labels, theme=theme)


MEASURE = Measure(
    "tokens",
    "Token matrices of a sentence",
    "Cosine of every token with every other: where all are near 1, the tokens cannot be distinguished.",
    measure_token_matrices,
    figures=(
        Figure(
            _plot,
            title="Tokens of a sentence",
            reading="The cosine of every token with every other: in a field of one colour they cannot be "
            "distinguished.",
            section="smoothing",
            groups=_by_tokens,
            note=lambda values: f"“{next(iter(values.values())).sentence}”",
        ),
    ),
    in_report=_with_readable_sentence,
)
