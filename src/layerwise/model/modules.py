"""Modules of sentence-transformers for mixes and heads that it does not provide.

They need `layerwise` to be installed and `trust_remote_code=True`: a pooling for all mixes that are not native (also
averages of several max-pooled layers: sentence-transformers averages tokens before pooling, which differs for the
maximum), a transformer that runs once for each prompt of a mix, and flows.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor, nn

from layerwise.encoder import (
    POOLINGS,
    Prompt,
    PromptTokenizer,
    SentenceTokenizer,
    by_prompt,
    padded,
    parse_pooling,
    pooled_mask,
)
from layerwise.errors import ModelError
from layerwise.mixes import Mix, parse_mix, without_last_token
from layerwise.postprocess import Coupling, FlowNetwork


class MixPooling(Module):
    """Combines all hidden states, or the views of a `PromptedTransformer`, to one embedding in float32.

    Args:
        mix: The text of the mix.
        word_embedding_dimension: The width of a layer.
        depth: The encoder's last layer.
        weights: What the mix learnt: means and components of views, or an attention's matrices.
    """

    config_keys: list[str] = ["mix", "word_embedding_dimension", "depth"]  # noqa: RUF012 - as the host declares it

    def __init__(
        self, mix: str, word_embedding_dimension: int, depth: int, *, weights: Mapping[str, Tensor] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mix, self.word_embedding_dimension, self.depth = mix, word_embedding_dimension, depth
        self._mix = parse_mix(mix).resolve(depth).with_weights(weights or {})
        self.fitted = self._mix.fitted

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Pool every needed layer, then mix; SBERT-WK mixes the tokens' layers themselves."""
        mix = self._mix if self.fitted is None else self._mix.with_fitted(self.fitted)  # of this copy of several
        if mix.reads_tokens:
            token_mask = without_last_token(features["attention_mask"])
            states = features["all_layer_embeddings"]
            tokens = torch.stack([states[layer][token_mask] for layer in mix.layers], dim=1)
            features["sentence_embedding"] = mix.combine_tokens(tokens, token_mask)
        else:
            features["sentence_embedding"] = mix.combine(_views(features, mix).float())
        return features

    def get_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self._mix.width(self.word_embedding_dimension)

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the config, and what the mix learnt if anything."""
        self.save_config(output_path)
        if self.fitted is not None:
            _save_weights(self.fitted, output_path)

    @classmethod
    def load(  # type: ignore[override] # noqa: D102 - the host's contract
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> Self:
        place = _place(subfolder, options)
        path = cls.load_file_path(model_name_or_path, "model.safetensors", **place)
        return cls(**cls.load_config(model_name_or_path, **place), weights=load_file(path) if path else {})


class PromptedTransformer(Transformer):
    """The host's transformer, run once for each prompt that a mix has views of."""

    config_keys: list[str] = [*Transformer.config_keys, "poolings"]  # noqa: RUF012 - as the host declares it

    def __init__(self, model_name_or_path: str, *, poolings: Sequence[str] = ("mean",), **options: Any) -> None:
        super().__init__(model_name_or_path, **options)
        self.poolings = list(poolings)

    def preprocess(  # type: ignore[override] # the host's other options are for other kinds of input
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Any]:
        """Tokenise the texts in every prompt, and locate the tokens to pool."""
        texts = [f"{prompt or ''}{text}" for text in inputs]
        features: dict[str, Any] = {"modality": "text"}
        for number, pooling_prompt in enumerate(by_prompt(self.poolings)):
            tokens = self._tokenizer_of(pooling_prompt)(texts)
            ids, mask = padded(tokens.numbers, tokens.lengths, int(self._words.pad_token_id or 0))
            features |= {f"input_ids_{number}": ids, f"attention_mask_{number}": mask}
            if tokens.places is not None:
                features[f"places_{number}"] = torch.from_numpy(tokens.places)
        return features | {"input_ids": features["input_ids_0"], "attention_mask": features["attention_mask_0"]}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Compute every pooling's views of all layers, (texts, layers, width)."""
        views: dict[str, Tensor] = {}
        for number, names in enumerate(by_prompt(self.poolings).values()):
            mask, places = features[f"attention_mask_{number}"], features.get(f"places_{number}")
            output = self.model(
                input_ids=features[f"input_ids_{number}"], attention_mask=mask, output_hidden_states=True
            )
            for name in names:
                pooling = parse_pooling(name).pooling
                pooled = pooled_mask(pooling, mask, places)
                views[name] = torch.stack([POOLINGS[pooling](layer, pooled) for layer in output.hidden_states], dim=1)
        return features | {"views": views, "token_embeddings": output.last_hidden_state}

    def _tokenizer_of(self, prompt: Prompt) -> SentenceTokenizer | PromptTokenizer:
        length = int(self.max_seq_length or self._words.model_max_length)
        if prompt.is_plain:
            return SentenceTokenizer(self._words, max_length=length)
        return PromptTokenizer(self._words, prompt, max_length=length, model="this model")

    @property
    def _words(self) -> Any:
        return self.tokenizer


class FlowTransform(Module):
    """Applies a fitted flow to the sentence embedding, in the dtype of its weights, which the host may change."""

    network: FlowNetwork
    config_keys: list[str] = ["width", "blocks", "hidden", "coupling"]  # noqa: RUF012 - as the host declares it

    def __init__(self, width: int, blocks: int, hidden: int, coupling: Coupling) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.width, self.blocks, self.hidden, self.coupling = width, blocks, hidden, coupling
        self.network = FlowNetwork(width, blocks=blocks, hidden=hidden, coupling=coupling).requires_grad_(False)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Apply the flow to the embedding, preserving its dtype."""
        embeddings: Tensor = features["sentence_embedding"]
        weights = next(self.network.parameters())
        features["sentence_embedding"] = self.network(embeddings.to(weights.dtype)).to(embeddings.dtype)
        return features

    def get_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self.width

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the config and the weights."""
        self.save_config(output_path)
        _save_weights(self.network, output_path)

    @classmethod
    def load(  # type: ignore[override] # noqa: D102 - the host's contract
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> Self:
        place = _place(subfolder, options)
        path = cls.load_file_path(model_name_or_path, "model.safetensors", **place)
        if path is None:
            raise ModelError(f"{model_name_or_path}: no model.safetensors in {subfolder}; the folder is incomplete")
        flow = cls(**cls.load_config(model_name_or_path, **place))
        flow.network.load_state_dict(load_file(path))
        return flow


def _views(features: dict[str, Any], mix: Mix) -> Tensor:
    """A mix's views from a `PromptedTransformer` or all hidden states: (batch, poolings, layers, width)"""
    layers = list(mix.layers)
    if "views" in features:
        return torch.stack([features["views"][name][:, layers] for name in mix.poolings], dim=1)
    states, mask = features["all_layer_embeddings"], features["attention_mask"]
    by_pooling = [torch.stack([POOLINGS[name](states[layer], mask) for layer in layers], 1) for name in mix.poolings]
    return torch.stack(by_pooling, dim=1)


def _save_weights(network: nn.Module, folder: str) -> None:
    weights = {name: tensor.contiguous().cpu() for name, tensor in network.state_dict().items()}
    save_file(weights, Path(folder) / "model.safetensors")


def _place(subfolder: str, options: dict[str, Any]) -> dict[str, Any]:
    """Select the host's loading options that locate a file."""
    named = ("token", "cache_folder", "revision", "local_files_only")
    return {"subfolder": subfolder, **{name: options[name] for name in named if name in options}}
