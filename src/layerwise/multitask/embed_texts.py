"""A task's texts to embeddings, each different text once, in length-sorted batches without gradient."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder.stream import stream, window_rows, windows_of
from layerwise.encoder.tokens import SentenceTokenizer
from layerwise.model.layer_model import LayerModel

Array = NDArray[np.float32]


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
        forward=model.forward,
        device=encoder.device,
        budget=encoder.budget,
    )
    found = np.concatenate(list(parts))
    return tuple(found[[places[text] for text in column]] for column in columns)
