"""The one module of ours for sentence-transformers, for mixes that its own modules can't express.

It needs `layerwise` to be installed and `trust_remote_code=True`. Concatenations need it, and averages of several
max-pooled layers (sentence-transformers averages tokens before pooling, which differs for the maximum).
"""

from typing import Any, Self

import torch
from sentence_transformers.base.modules.module import Module
from torch import Tensor

from layerwise.encoder.pooling import POOLINGS
from layerwise.mixes import parse_mix


class LayerMixPooling(Module):
    """All hidden states to one embedding, by the text of a mix."""

    config_keys: list[str] = ["mix", "word_embedding_dimension"]  # noqa: RUF012 - as the host declares it

    def __init__(self, mix: str, word_embedding_dimension: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mix = mix
        self.word_embedding_dimension = word_embedding_dimension
        self._mix = parse_mix(mix)
        self._pool = POOLINGS[self._mix.pooling]

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Pool every needed layer, then mix."""
        states: tuple[Tensor, ...] = features["all_layer_embeddings"]
        mask = features["attention_mask"]
        picked = torch.stack([self._pool(states[layer], mask) for layer in self._mix.layers], dim=1)
        features["sentence_embedding"] = self._mix.combine(picked).to(states[-1].dtype)
        return features

    def get_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self._mix.width(self.word_embedding_dimension)

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the config; there are no weights."""
        self.save_config(output_path)

    @classmethod
    def load(  # type: ignore[override] # noqa: D102 - the host's contract
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        **_: Any,
    ) -> Self:
        config = cls.load_config(
            model_name_or_path,
            subfolder=subfolder,
            token=token,
            cache_folder=cache_folder,
            revision=revision,
            local_files_only=local_files_only,
        )
        return cls(**config)
