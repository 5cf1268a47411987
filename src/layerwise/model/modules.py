"""Modules for sentence-transformers, for mixes and heads that it has no modules for.

They need `layerwise` to be installed and `trust_remote_code=True`. Concatenations, joins, SBERT-WK and averages of
several max-pooled layers (sentence-transformers averages tokens before pooling, which differs for the maximum) need
one, attention over layers another, flows the third.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules.module import Module
from torch import Tensor, nn

from layerwise.encoder import POOLINGS
from layerwise.errors import ModelError
from layerwise.mixes import AttentionNetwork, LayerAttention, LayerWk, parse_mix, without_last_token
from layerwise.postprocess import Coupling, FlowNetwork


class LayerMixPooling(Module):
    """All hidden states to one embedding, by the text of a mix."""

    config_keys: list[str] = ["mix", "word_embedding_dimension"]  # noqa: RUF012 - as the host declares it

    def __init__(self, mix: str, word_embedding_dimension: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mix = mix
        self.word_embedding_dimension = word_embedding_dimension
        self._mix = parse_mix(mix)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Pool every needed layer, then mix; SBERT-WK mixes the tokens' layers themselves."""
        states: tuple[Tensor, ...] = features["all_layer_embeddings"]
        features["sentence_embedding"] = self._mixed(states, features["attention_mask"]).to(states[-1].dtype)
        return features

    def _mixed(self, states: tuple[Tensor, ...], mask: Tensor) -> Tensor:
        if isinstance(self._mix, LayerWk):
            token_mask = without_last_token(mask)
            tokens = torch.stack([states[layer][token_mask] for layer in self._mix.layers], dim=1)
            return self._mix.combine_tokens(tokens, token_mask)
        return self._mix.combine_poolings(_views(states, mask, self._mix.layers, self._mix.poolings))

    def get_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self._mix.width(self.word_embedding_dimension)

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the config; there are no weights."""
        self.save_config(output_path)

    @classmethod
    def load(  # type: ignore[override] # noqa: D102 - the host's contract
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> Self:
        place = _place(subfolder, options)
        return cls(**cls.load_config(model_name_or_path, **place))


class NetworkModule(Module):
    """A module whose weights are one network: its config and these weights are all that is written."""

    network: nn.Module

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the config and the weights."""
        self.save_config(output_path)
        _save_weights(self.network, output_path)

    @classmethod
    def load(  # type: ignore[override] # noqa: D102 - the host's contract
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> Self:
        place = _place(subfolder, options)
        module = cls(**cls.load_config(model_name_or_path, **place))
        module.network.load_state_dict(_load_weights(cls, model_name_or_path, place))
        return module


class LayerAttentionPooling(NetworkModule):
    """All hidden states to one embedding, by trained attention over them; computed in the type of its weights."""

    network: AttentionNetwork
    config_keys: list[str] = ["mix", "word_embedding_dimension", "depth"]  # noqa: RUF012 - as the host declares it

    def __init__(self, mix: str, word_embedding_dimension: int, depth: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mix, self.word_embedding_dimension, self.depth = mix, word_embedding_dimension, depth
        parsed = parse_mix(mix)
        if not isinstance(parsed, LayerAttention):
            raise ModelError(f"The mix {mix} is no attention over layers; the folder is damaged, save it again")
        self._mix = parsed.resolve(depth)
        self.network = AttentionNetwork(word_embedding_dimension, scores=parsed.scores)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Pool every layer, then attend to them."""
        mix = self._mix.with_network(self.network)  # of this copy, where the host runs several
        views = _views(features["all_layer_embeddings"], features["attention_mask"], mix.layers, mix.poolings)
        features["sentence_embedding"] = mix.combine_poolings(views)
        return features

    def get_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self._mix.width(self.word_embedding_dimension)


class FlowTransform(NetworkModule):
    """A fitted flow on the sentence embedding, computed in the type of its weights: the host's loading may halve it."""

    network: FlowNetwork
    config_keys: list[str] = ["width", "blocks", "hidden", "coupling"]  # noqa: RUF012 - as the host declares it

    def __init__(self, width: int, blocks: int, hidden: int, coupling: Coupling) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.width, self.blocks, self.hidden, self.coupling = width, blocks, hidden, coupling
        self.network = FlowNetwork(width, blocks=blocks, hidden=hidden, coupling=coupling).requires_grad_(False)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The embedding through the flow, in the type that it came in."""
        embeddings: Tensor = features["sentence_embedding"]
        weights = next(self.network.parameters())
        features["sentence_embedding"] = self.network(embeddings.to(weights.dtype)).to(embeddings.dtype)
        return features

    def get_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self.width


def _views(states: Sequence[Tensor], mask: Tensor, layers: Sequence[int], poolings: Sequence[str]) -> Tensor:
    """Hidden states (batch, tokens, width) of every layer -> views (batch, poolings, layers, width)."""
    by_pooling = [[POOLINGS[name](states[layer], mask) for layer in layers] for name in poolings]
    return torch.stack([torch.stack(pooled, dim=1) for pooled in by_pooling], dim=1)


def _save_weights(network: nn.Module, folder: str) -> None:
    weights = {name: tensor.contiguous().cpu() for name, tensor in network.state_dict().items()}
    save_file(weights, Path(folder) / "model.safetensors")


def _load_weights(kind: type[Module], folder: str, place: dict[str, Any]) -> dict[str, Tensor]:
    path = kind.load_file_path(folder, "model.safetensors", **place)
    if path is None:
        raise ModelError(f"{folder}: no model.safetensors in {place['subfolder']}; the folder is incomplete")
    return load_file(path)


def _place(subfolder: str, options: dict[str, Any]) -> dict[str, Any]:
    """Of the host's options for loading, those that say where a file is."""
    named = ("token", "cache_folder", "revision", "local_files_only")
    return {"subfolder": subfolder, **{name: options[name] for name in named if name in options}}
