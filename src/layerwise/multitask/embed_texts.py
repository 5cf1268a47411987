"""A task's texts to embeddings, each different text once, in length-sorted batches without gradient."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import stream, window_rows, windows_of
from layerwise.encoder.tokens import SentenceTokenizer, Tokens
from layerwise.model.layer_model import LayerModel

Array = NDArray[np.float32]


class RememberedTokens(SentenceTokenizer):
    """A tokenizer for texts that come again and again: each is cut into tokens once. It counts no truncated texts."""

    def __init__(self, tokenizer: Any, *, max_length: int) -> None:
        super().__init__(tokenizer, max_length=max_length)
        self._known: dict[str, list[int]] = {}

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """As the plain one, from memory where the text is known."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, super().__call__(new).ids, strict=True))
        return Tokens([self._known[text] for text in texts], 0)


def task_tokenizers(
    tokenizer: Any, lengths: Mapping[str, int], *, kind: type[SentenceTokenizer] = SentenceTokenizer
) -> dict[str, SentenceTokenizer]:
    """Each task's tokenizer, by its length; tasks of one length share one, for making one takes a tenth of a second."""
    made = {length: kind(tokenizer, max_length=length) for length in dict.fromkeys(lengths.values())}
    return {name: made[length] for name, length in lengths.items()}


def embed_columns(
    model: LayerModel, columns: Sequence[Sequence[str]], tokenizer: SentenceTokenizer
) -> tuple[Array, ...]:
    """Embeddings of every column's n texts, (n, width) each; the tokenizer cuts them to the task's length."""
    places = {text: place for place, text in enumerate(dict.fromkeys(text for column in columns for text in column))}
    encoder = model.encoder
    parts = stream(
        windows_of(list(places), window_rows(4 * model.width)),
        tokenizer=tokenizer,
        pad_id=int(encoder.tokenizer.pad_token_id or 0),
        forward=lambda tokens, mask: model.forward(tokens, mask).float(),  # under autocast a head gives bfloat16
        device=encoder.device,
        budget=encoder.budget,
    )
    found = np.concatenate(list(parts))
    return tuple(found[[places[text] for text in column]] for column in columns)
