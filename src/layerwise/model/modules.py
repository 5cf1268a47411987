"""Modules of sentence-transformers for mixes and heads that it does not provide.

They need `layerwise` to be installed and `trust_remote_code=True`. Concatenations, joins, SBERT-WK and averages of
several max-pooled layers (sentence-transformers averages tokens before pooling, which differs for the maximum) need
one, attention over layers another, flows the third; means of views have their own, and where these are of prompts, a
transformer that runs once for each.
"""

from collections.abc import Sequence
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
from layerwise.mixes import (
    AttentionNetwork,
    Centres,
    LayerAttention,
    LayerViews,
    LayerWk,
    parse_mix,
    without_last_token,
)
from layerwise.postprocess import Coupling, FlowNetwork


class LayerMixPooling(Module):
    """Combines all hidden states to one embedding, by a mix in text form."""

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


class LayerViewsPooling(Module):
    """Combines views of layers, from one pass per prompt, to one embedding in float32."""

    config_keys: list[str] = ["mix", "word_embedding_dimension"]  # noqa: RUF012 - as the host declares it
    means: Tensor
    directions: Tensor

    def __init__(self, mix: str, word_embedding_dimension: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mix, self.word_embedding_dimension = mix, word_embedding_dimension
        parsed = parse_mix(mix)
        if not isinstance(parsed, LayerViews):
            raise ModelError(f"The mix {mix} is no mean of views; the folder is damaged, save it again")
        self._mix = parsed
        views = sum(len(part.layers) for part in parsed.parts)
        self.register_buffer("means", torch.zeros(views, word_embedding_dimension))
        self.register_buffer("directions", torch.zeros(views, parsed.components or 0, word_embedding_dimension))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Take away what is to be taken away, scale, average."""
        mix = self._mix
        if mix.components is not None:
            mix = mix.with_centres(Centres(self.means, self.directions))
        features["sentence_embedding"] = mix.combine_poolings(_views_of(features, mix).float())
        return features

    def get_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self.word_embedding_dimension

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the config, and means and components if any."""
        self.save_config(output_path)
        if self._mix.components is not None:
            _save_weights(self, output_path)

    @classmethod
    def load(  # type: ignore[override] # noqa: D102 - the host's contract
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> Self:
        place = _place(subfolder, options)
        module = cls(**cls.load_config(model_name_or_path, **place))
        if module._mix.components is not None:
            module.load_state_dict(_load_weights(cls, model_name_or_path, place))
        return module


class NetworkModule(Module):
    """A module with one network, saved as its config and the network's weights."""

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
    """Combines all hidden states to one embedding by trained attention, in the dtype of its weights."""

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
        features["sentence_embedding"] = mix.combine_poolings(_views_of(features, mix))
        return features

    def get_embedding_dimension(self) -> int:
        """The width of an embedding."""
        return self._mix.width(self.word_embedding_dimension)


class FlowTransform(NetworkModule):
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


def _views_of(features: dict[str, Any], mix: LayerViews | LayerAttention) -> Tensor:
    """Return a mix's views from a `PromptedTransformer` or all hidden states: (batch, poolings, layers, width)."""
    if "views" not in features:
        return _views(features["all_layer_embeddings"], features["attention_mask"], mix.layers, mix.poolings)
    layers = list(mix.layers)
    return torch.stack([features["views"][name][:, layers] for name in mix.poolings], dim=1)


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
    """Select the host's loading options that locate a file."""
    named = ("token", "cache_folder", "revision", "local_files_only")
    return {"subfolder": subfolder, **{name: options[name] for name in named if name in options}}
