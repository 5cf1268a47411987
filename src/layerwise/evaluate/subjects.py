"""Loaded subjects: a model with one or several layer mixes, or any object that encodes sentences."""

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from layerwise.encoder import Array, tokenizer_fingerprint
from layerwise.errors import InputError
from layerwise.evaluate.subject import Subject, Variant
from layerwise.mixes import Mix, parse_mix
from layerwise.model import AnyHead, FlowHead, LayerModel
from layerwise.postprocess import ENCODER, LAYERS, FittedOn

log = logging.getLogger(__name__)

_LARGEST_VIEWS = 8 * 2**30  # bytes of views of one task that are cached; beyond, embeddings are made directly


class LayerSubject(Subject):
    """A `LayerModel` by its mix, or by other mixes of its encoder's layers, all from one cached pass.

    Args:
        model: The model. Its heads and normalising are left out with another mix.
        mixes: Mixes instead of the model's, or one.
        cache: Keep layer views on disk and read them from there.
        show_progress_bar: While encoding.
    """

    def __init__(
        self,
        model: LayerModel,
        mixes: Sequence[Mix | str] | str = (),
        *,
        cache: bool = True,
        show_progress_bar: bool = False,
    ) -> None:
        given_mixes = [mixes] if isinstance(mixes, str) else mixes
        parsed = [parse_mix(mix) if isinstance(mix, str) else mix for mix in given_mixes]
        _check_different([mix for mix in parsed if mix.is_learned])
        resolved = dict.fromkeys(mix.resolve(model.encoder.depth) for mix in parsed)
        self.model = model
        self.cache = cache
        self.show_progress_bar = show_progress_bar
        self._models = {str(mix): model.with_mix(mix) for mix in resolved} or {str(model.mix): model}

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self.model.encoder.name

    @property
    def variants(self) -> list[Variant]:
        """One for each mix."""
        return [
            Variant(
                label,
                model.mix.layers,
                "+".join(model.mix.poolings),
                {"normalize": model.normalize, "mix_digest": model.mix_digest()},
                _heads_in_words(model),
            )
            for label, model in self._models.items()
        ]

    @cached_property
    def _hashes(self) -> tuple[str, str]:
        return self.model.encoder.fingerprint()

    def facts(self) -> dict[str, Any]:
        """Everything that determines an embedding besides the mix."""
        encoder, (weights, tokenizer) = self.model.encoder, self._hashes
        return {
            "model": self.name,
            "model_hash": weights,
            "tokenizer_hash": tokenizer,
            "max_length": encoder.max_length,
            "dtype": encoder.dtype,
            "backend": encoder.arithmetic,
            "prompts": self.model.prompts if any(self.model.prompts.values()) else {},
            "default_prompt": self.model.default_prompt_name,
        }

    def views(self, texts: Sequence[str], poolings: Sequence[str], role: str = "") -> dict[str, Array]:
        """The layers' views by token pooling: (texts, layers + 1, width) each, from the cache if they are there."""
        return self.model.encoder.encode_layers(
            self._prompted(texts, role), list(poolings), cache=self.cache, show_progress_bar=self.show_progress_bar
        )

    def embed(self, texts: Sequence[str], role: str, variants: Sequence[Variant]) -> Iterator[Array]:
        """One pass for all poolings that the mixes need, then each mix."""
        models = [self._models[variant.label] for variant in variants]
        poolings = list(dict.fromkeys(model.mix.pooling for model in models if _by_views(model)))
        encoder = self.model.encoder
        size = 4 * len(texts) * (encoder.depth + 1) * encoder.width * len(poolings)
        views = self.views(texts, poolings, role) if poolings and size <= _LARGEST_VIEWS else {}
        for model in models:
            if _by_views(model) and views:
                yield model.embed_views(views)
            else:
                yield model.encode(list(texts), prompt=self._prompt(role), show_progress_bar=self.show_progress_bar)

    def records(self, variant: Variant) -> tuple[FittedOn, ...]:
        """The records of text that the model with this mix was fitted on."""
        return tuple(self._models[variant.label].fitted_on)

    def _prompt(self, role: str) -> str:
        return self.model.prompt(role or None)

    def _prompted(self, texts: Sequence[str], role: str) -> list[str]:
        before = self._prompt(role)
        return [before + text for text in texts]


class HostSubject(Subject):
    """Any object with sentence-transformers' `encode`: one variant, without access to layers."""

    def __init__(self, model: Any, *, name: str = "", show_progress_bar: bool = False) -> None:
        self._model = model
        self._name = name or type(model).__name__
        self.show_progress_bar = show_progress_bar

    @property
    def name(self) -> str:
        """The given name, or that of the class."""
        return self._name

    @cached_property
    def _hash(self) -> str:
        state = getattr(self._model, "state_dict", None)
        digest = sha256(repr(self._model).encode())  # of a SentenceTransformer: its modules and their settings
        digest.update(_rules(getattr(self._model, "tokenizer", None)).encode())
        for key, value in sorted((state() if state else {}).items()):
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest() if state else ""

    def facts(self) -> dict[str, Any]:
        """The hash of its weights and its settings; without weights, runs of one model cannot be recognised."""
        named = ("max_seq_length", "prompts", "default_prompt_name", "truncate_dim")
        facts = {"model": self.name, "model_hash": self._hash, "class": type(self._model).__name__}
        return facts | {name: getattr(self._model, name) for name in named if hasattr(self._model, name)}

    def embed(self, texts: Sequence[str], role: str, variants: Sequence[Variant]) -> Iterator[Array]:
        """By `encode`, or `encode_query` and `encode_document` where it has them."""
        encode = getattr(self._model, f"encode_{role}", None) or self._model.encode
        options = {"show_progress_bar": True} if self.show_progress_bar else {}  # not every encode has it
        for _ in variants:
            yield np.asarray(encode(list(texts), **options), dtype=np.float32)


def _rules(tokenizer: Any) -> str:
    """Return the digest of the tokenizer, of which sentence-transformers has several kinds."""
    if hasattr(tokenizer, "truncation_side"):
        return tokenizer_fingerprint(tokenizer)
    return str(tokenizer.to_str()) if hasattr(tokenizer, "to_str") else repr(tokenizer)


def layer_mixes(depth: int, poolings: Sequence[str] = ("mean", "cls", "max")) -> list[str]:
    """Return a mix for every layer by every pooling."""
    return [f"{layer} @ {pooling}" for pooling in poolings for layer in range(depth + 1)]


def _check_different(mixes: Sequence[Mix]) -> None:
    """Raise for attentions with the same label but different weights."""
    if len({str(mix) for mix in mixes}) < len({(str(mix), id(mix.fitted)) for mix in mixes}):
        raise InputError("several attentions of one text but of different weights: evaluate one model after the other")


def _by_views(model: LayerModel) -> bool:
    """Whether a mix without weights needs the views of one token pooling only."""
    return not (model.mix.reads_tokens or model.mix.is_learned) and len(model.mix.poolings) == 1


def _heads_in_words(model: LayerModel) -> str:
    """Such as "whitening fitted on 50,000 sentences of wiki1m"; empty for a model without heads.

    Fitted heads come last, so the heads without a record are the first ones.
    """
    fitted = [f"{record.what} fitted on {record}" for record in model.fitted_on if record.what not in (ENCODER, LAYERS)]
    others = model.heads[: len(model.heads) - len(fitted)] if len(fitted) < len(model.heads) else ()
    return ", then ".join([*map(_head_in_words, others), *fitted]) if model.heads else ""


def _head_in_words(head: AnyHead) -> str:
    if isinstance(head, FlowHead):
        return "a flow"
    return f"a linear layer ({head.activation}, {head.in_features} to {head.out_features} numbers)"
