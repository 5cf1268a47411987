"""From a recipe to the modules: pooler, head, terms, and the finished model that they leave."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from layerwise.encoder.dropout import dropout_rate
from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.errors import InputError, MixError
from layerwise.mixes import LayerAttention, LayerMix, parse_mix
from layerwise.model.head import Head
from layerwise.model.layer_model import LayerModel
from layerwise.train.heads import fresh_head
from layerwise.train.settings import ModelSettings, Recipe
from layerwise.train.student import Student
from layerwise.train.terms import Place


@dataclass(frozen=True)
class Parts:
    """What is trained, and how it becomes a model."""

    encoder: LayerEncoder
    settings: ModelSettings
    pooler: LayerMix
    head: nn.Module
    student: Student

    def finished(self, **about: Any) -> LayerModel:
        """The model that the recipe asks for; `about` goes to `LayerModel` (training, fitted_on)."""
        if self.settings.inference:
            return LayerModel(self.encoder, self.settings.inference, **about)
        return self.with_pooler(**about)

    def with_pooler(self, *, keep_head: bool | None = None, **about: Any) -> LayerModel:
        """The model with its pooler, whatever the recipe says of inference, and its head if that is kept."""
        keep = self.settings.keep_head if keep_head is None else keep_head
        heads = [self.head] if keep and isinstance(self.head, Head) else []
        return LayerModel(self.encoder, self.pooler, heads=heads, **about)


def build(recipe: Recipe, encoder: LayerEncoder, *, seed: int) -> Parts:
    """Fresh pooler, head and terms around an encoder, which is trained in place."""
    settings = recipe.model
    if recipe.train.chunk and settings.head == "mlp-bn":
        raise InputError("[train] chunk: batch norm needs the whole batch at once; take another head than mlp-bn")
    if settings.inference:
        parse_mix(settings.inference).resolve(encoder.depth)  # a layer that is not there is refused before training
    set_dropout(encoder, settings.dropout)
    _check_two_views(encoder, recipe)
    pooler = fresh_pooler(settings.pooler, encoder, seed=seed)
    wide = pooler.width(encoder.width)
    width = settings.width or (encoder.width if settings.head != "none" else wide)
    head = fresh_head(settings.head, wide, width, seed=seed + 1).to(encoder.device)
    place = Place(
        encoder=encoder,
        width=width,
        pooling=pooler.poolings[0],
        head_takes=0 if settings.head == "none" else wide,
        seed=seed + 2,
    )
    terms = {term.name: term.build(place) for term in recipe.objectives}
    weights = {term.name: term.weight for term in recipe.objectives}
    student = Student(encoder, pooler, head, terms, weights).to(encoder.device)
    freeze(student, encoder.model, settings.freeze)
    return Parts(encoder, settings, pooler, head, student)


def fresh_pooler(mix: str, encoder: LayerEncoder, *, seed: int) -> LayerMix:
    """A mix for an encoder by its text; attention gets a new network."""
    try:
        pooler: LayerMix = parse_mix(mix).resolve(encoder.depth)
    except MixError as error:
        raise MixError(f"[model] pooler {mix!r} of {encoder.name}: {error}") from error
    if isinstance(pooler, LayerAttention):
        pooler = pooler.fresh(encoder.width, seed=seed)
        pooler.trained.to(encoder.device)
    return pooler


def set_dropout(encoder: LayerEncoder, rate: float | None) -> None:
    """The rate of every dropout module; None leaves them as they are."""
    if rate is not None:
        for module in encoder.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = rate


def _check_two_views(encoder: LayerEncoder, recipe: Recipe) -> None:
    if recipe.copies > 1 and not dropout_rate(encoder.model):
        raise InputError(
            f"{encoder.name} has no dropout, so two passes over a sentence are equal; "
            f"set dropout = 0.1 under [model], or train on pairs"
        )


def freeze(student: nn.Module, backbone: nn.Module, names: Sequence[str]) -> None:
    """Freeze what the recipe says, and what no loss reaches: a pooler that the encoder brings along."""
    if "embeddings" in names:
        backbone.get_submodule("embeddings").requires_grad_(False)
    unused = getattr(backbone, "pooler", None)
    if isinstance(unused, nn.Module):
        unused.requires_grad_(False)
    for parameter in student.parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise InputError(
                "weights are trained in float32; load the encoder with dtype float32 (bf16 is by autocast)"
            )
