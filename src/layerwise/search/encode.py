"""The views that a search needs, from the model's encoder by way of its cache, and how long that took."""

import time
from collections.abc import Iterable, Sequence

from layerwise.encoder import Array, LayerEncoder, Prompt
from layerwise.model import LayerModel
from layerwise.texts import unique_texts

_ALL_POOLINGS = ("mean", "last", "weighted-mean", "mean-but-first", "max")


class CachedViews:
    """Encodes texts with the model's prompt before them, using the cache, and measures the time.

    The weights are hashed once, by the first call: they must not change while this is used.

    Args:
        encoder: Who encodes.
        prompt: The prefix of every text.
        show_progress_bar: Show a progress bar of the sentences.
    """

    def __init__(self, encoder: LayerEncoder, prompt: str = "", *, show_progress_bar: bool = False) -> None:
        self.encoder = encoder
        self.prompt = prompt
        self.show_progress_bar = show_progress_bar
        self.seconds = 0.0
        self._fingerprint: tuple[str, str] | None = None

    def __call__(self, texts: list[str], poolings: list[str]) -> dict[str, Array]:
        """Encode texts: a mapping of each pooling to its views (texts, layers, width)."""
        start = time.perf_counter()
        self._fingerprint = self._fingerprint or self.encoder.fingerprint()
        with self.encoder.known_as(self._fingerprint):
            views = self._encode(texts, poolings)
        self.seconds += time.perf_counter() - start
        return views

    def sides(
        self, left: Sequence[str], right: Sequence[str], poolings: Sequence[str]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """The views of both sides; each unique text is encoded once."""
        texts, (first, second) = unique_texts(left, right)
        views = self(texts, list(poolings))
        return {name: rows[first] for name, rows in views.items()}, {name: rows[second] for name, rows in views.items()}

    def _encode(self, texts: list[str], poolings: list[str]) -> dict[str, Array]:
        prompted = [self.prompt + text for text in texts]
        return self.encoder.encode_layers(prompted, poolings, cache=True, show_progress_bar=self.show_progress_bar)


def view_poolings(model: LayerModel, plain: Sequence[str], prompts: Iterable[Prompt]) -> list[str]:
    """The poolings to search: `plain` ones without a prompt, and each prompt with its default pooling and the mean.

    `plain` defaults to the poolings of the model's mix; "all" stands for all that suit the model.
    """
    names = list(plain or model.mix.poolings)
    if "all" in plain:
        has_cls = model.tokenizer.mask_token is not None
        names = [*model.mix.poolings, *_ALL_POOLINGS, *(["cls"] if has_cls else [])]
    in_prompts = [f"{pooling} in {prompt.label}" for prompt in prompts for pooling in (prompt.pooling, "mean")]
    return list(dict.fromkeys([*names, *in_prompts]))
