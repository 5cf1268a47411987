"""A sentence's tokens against each other, layer by layer (SSCL, figure 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.analysis.smoothing import token_cosines
from layerwise.encoder import resolve_layer
from layerwise.encoder.tokens import SentenceTokenizer
from layerwise.errors import InputError
from layerwise.measures.material import Material
from layerwise.measures.measure import Measure, Measured, Row, add_measure


@dataclass(frozen=True, eq=False)
class TokenMatrices(Measured):
    """The cosines of a sentence's tokens, special ones included, in some layers: (layers, tokens, tokens)"""

    sentence: str
    tokens: tuple[str, ...]
    layers: tuple[int, ...]
    cosines: NDArray[np.float64]

    def rows(self) -> list[Row]:
        """A row for each token of each layer, with its cosine to every token; columns are numbered, for words recur."""
        names = [f"{place} {token}" for place, token in enumerate(self.tokens)]
        return [
            {"layer": layer, "token": name} | dict(zip(names, cosines, strict=True))
            for layer, matrix in zip(self.layers, self.cosines.tolist(), strict=True)
            for name, cosines in zip(names, matrix, strict=True)
        ]


def token_matrices(
    material: Material, sentence: str | None = None, layers: Sequence[int] | None = None
) -> TokenMatrices:
    """The cosines of a sentence's tokens in some layers; one at a time is read, none of the others is kept.

    Args:
        material: The model and its pairs.
        sentence: Any text, with the model's prompt put before it; without it the first text of the pairs.
        layers: Their numbers, negative ones from the last; without them the first, the middle and the last block's.
    """
    encoder = material.model.encoder
    depth = encoder.depth
    wanted = (min(1, depth), (depth + 1) // 2, depth) if layers is None else layers
    picked = tuple(dict.fromkeys(resolve_layer(layer, depth) for layer in wanted))
    if not picked:
        raise InputError("token matrices are of one layer at least; name one, such as -1")
    text = material.pairs.left[0] if sentence is None else sentence
    if not text.strip():
        raise InputError("the sentence is empty; give one of two words or more")
    (ids,) = SentenceTokenizer(encoder.tokenizer, max_length=encoder.max_length)([material.model.prompt() + text]).ids
    with torch.inference_mode():
        tokens = torch.tensor([ids], device=encoder.device)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        found = encoder.reader.read(inputs, set(picked), lambda states: token_cosines(states[0]).double().cpu())
    words = tuple(encoder.tokenizer.convert_ids_to_tokens(ids))
    return TokenMatrices(text, words, picked, torch.stack([found[layer] for layer in picked]).numpy())


add_measure(
    Measure(
        "tokens",
        "Token matrices of a sentence",
        "Cosine of every token with every other: where all are near 1, the tokens can't be told apart.",
        token_matrices,
        options=("sentence", "layers"),
    )
)
