"""The student of contrastive training: encoder, pooler, head and loss terms; one forward pass a step."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder, Prompt, dropout_rate
from layerwise.errors import InputError
from layerwise.mixes import Mix, parse_mix
from layerwise.model import Head, LayerModel
from layerwise.objectives import gather_rows
from layerwise.train.contrastive.decoders import add_lora
from layerwise.train.contrastive.denoising import Denoiser
from layerwise.train.contrastive.prompted import prompt_of, prompt_tokenizer, second_prompt_of
from layerwise.train.contrastive.settings import Recipe
from layerwise.train.contrastive.terms import LocalRows, Step, Term, TermContext
from layerwise.train.loop.student import BaseStudent, Encoded, EncoderPass, freeze, new_layers

BATCH = "batch"  # the name of the single part


class Student(BaseStudent):
    """The module that is trained.

    Args:
        encoder: The encoder, whose model is trained in place.
        pooler: The resolved mix that computes embeddings; attention includes its network.
        head: Applied after the pooler, or identity.
        terms: The loss terms, by name.
        weights: The weights of the terms.
        denoiser: Subtracts the views of the prompt alone from all views of a pass.
    """

    def __init__(
        self,
        encoder: LayerEncoder,
        pooler: Mix,
        head: nn.Module,
        terms: Mapping[str, Term],
        weights: Mapping[str, float],
        denoiser: Denoiser | None = None,
    ) -> None:
        super().__init__(encoder, pooler, head)
        self.terms = nn.ModuleDict(terms)
        self.weights = dict(weights)
        self.denoiser = denoiser
        self._term_views = [view for term in terms.values() for view in term.views]
        self.layers = sorted({*pooler.layers, *(layer for _, layer in self._term_views)})
        self.poolings = list(dict.fromkeys([*pooler.poolings, *(pooling for pooling, _ in self._term_views)]))
        self._pooler_views = _PoolerViews(pooler, self.layers, self.poolings)
        self.encoded_names = ("embeddings", "views") if self._term_views else ("embeddings",)
        self.eval()  # a new module is in training mode, regardless of its encoder

    def passes(self, batch: Mapping[str, Any]) -> Sequence[EncoderPass]:
        """Return one pass of all columns: tokens (columns · b, t) with column 0's rows first."""
        tokens, mask, rows = batch["input_ids"], batch["attention_mask"], {BATCH: len(batch["input_ids"])}
        places, templates = batch.get("places"), batch.get("templates")
        return (EncoderPass(rows=rows, tokens=tokens, mask=mask, places=places, templates=templates),)

    def encode(
        self, tokens: Tensor, mask: Tensor, places: Tensor | None = None, templates: Tensor | None = None
    ) -> Encoded:
        """Run one pass: embeddings after the head, and the views that terms need, (rows, poolings, layers, width).

        A fourth number in `places` is the number of a text's prompt.
        """
        if self.denoiser is not None and places is not None:
            reader = self.encoder.reader
            views = self.denoiser.read(reader, tokens, mask, self.layers, self.poolings, places, templates)
        else:
            views = self.encoder.read(
                tokens, mask, self.layers, self.poolings, None if places is None else places[:, :3]
            )
        with torch.autocast(views.device.type, enabled=False):
            embeddings = self.head(self.pooler.combine(self._pooler_views(views)))
        encoded = {"embeddings": embeddings, "views": views}
        return {name: encoded[name] for name in self.encoded_names}

    def use_graphs(self) -> None:
        """Let terms that encode texts themselves use CUDA graphs."""
        for term in self.terms.values():
            cast("Term", term).use_graphs()

    def loss(self, encoded: Mapping[str, Encoded], batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the weighted sum of the terms; `batch` has tokens, mask, `rows` (b,) and, if needed, `frozen`."""
        step = self._step(encoded[BATCH], batch)
        parts = {name: term(step) for name, term in self.terms.items()}
        total = torch.stack([self.weights[name] * value.float() for name, value in parts.items()]).sum()
        return {"loss": total, "parts": {name: value.detach() for name, value in parts.items()}}

    def to_model(self, *, inference: str = "", keep_head: bool = False, **options: Any) -> LayerModel:
        """Build a model with the student's weights and pooler, or the mix `inference`; `options` are `LayerModel`'s."""
        if inference:
            return LayerModel(self.encoder, inference, **options)
        heads = [self.head] if keep_head and isinstance(self.head, Head) else []
        return LayerModel(self.encoder, self.pooler, heads=heads, **options)

    def _step(self, encoded: Encoded, batch: Mapping[str, Any]) -> Step:
        tokens, mask = batch["input_ids"], batch["attention_mask"]
        places, frozen = batch.get("places"), batch.get("frozen")
        columns = len(tokens) // len(batch["rows"])
        embeddings = _by_column(encoded["embeddings"], columns)
        views = {}
        if self._term_views:
            joint = _gather_columns(_by_column(encoded["views"], columns))
            views = {
                (pooling, layer): joint[:, :, self.poolings.index(pooling), self.layers.index(layer)]
                for pooling, layer in self._term_views
            }
        return Step(
            embeddings=_gather_columns(embeddings),
            views=views,
            local=LocalRows(
                embeddings,
                _by_column(tokens, columns),
                _by_column(mask, columns),
                None if places is None else _by_column(places, columns),
            ),
            head=self.head,
            frozen=None if frozen is None else gather_rows(frozen),
        )


def build_student(recipe: Recipe, encoder: LayerEncoder, *, seed: int, teacher_width: int = 0) -> Student:
    """Build a student with new pooler, head and terms; the encoder is trained in place."""
    settings = recipe.model
    if recipe.train.chunk and settings.head == "mlp-bn":
        raise InputError("[train] chunk: batch norm needs the whole batch at once; choose another head than mlp-bn")
    if settings.inference:
        parse_mix(settings.inference).resolve(encoder.depth)  # raises for a missing layer before training
    layers = new_layers(settings, encoder, seed=seed)
    denoiser = _denoiser(recipe, encoder, layers.pooler)  # raises for several prompts before anything is built
    if recipe.exits is not None and len(layers.pooler.poolings) > 1:
        raise InputError(f"objective 'exits' cuts one token pooling, but the pooler {layers.pooler} has several")
    if settings.lora:
        rank, alpha, dropout = settings.lora, settings.lora_alpha, settings.lora_dropout
        add_lora(encoder.model, rank=rank, alpha=alpha, dropout=dropout, seed=seed + 3)
    alike = not recipe.data.repetition and not settings.second_prompt
    if recipe.copies > 1 and alike and not dropout_rate(encoder.model):
        raise InputError(
            f"{encoder.name} has no dropout, so two passes over a sentence are equal; "
            f"set dropout = 0.1 under [model] or repetition = 0.32 under [data], or train on pairs"
        )
    context = TermContext(
        encoder=encoder,
        width=layers.width,
        pooling=layers.pooler.poolings[0],
        in_features=0 if settings.head == "none" else layers.in_features,
        seed=seed + 2,
        teacher_width=teacher_width,
        pooler=layers.pooler,
        head=layers.head,
        denoiser=denoiser,
    )
    terms = {term.name: term.build(context) for term in recipe.objectives}
    weights = {term.name: term.weight for term in recipe.objectives}
    student = Student(encoder, layers.pooler, layers.head, terms, weights, denoiser).to(encoder.device)
    freeze(student, encoder.model, settings.freeze)
    return student


def prompts_of(recipe: Recipe, pooler: Mix) -> list[Prompt]:
    """Return the prompt of the texts, and that of the second view if it is different."""
    second = recipe.model.second_prompt
    return [prompt_of(pooler), *([second_prompt_of(second, pooler)] if second else [])]


def _denoiser(recipe: Recipe, encoder: LayerEncoder, pooler: Mix) -> Denoiser | None:
    prompts = prompts_of(recipe, pooler)
    if not recipe.model.denoise:
        return None
    for prompt in prompts:
        if prompt.is_plain or prompt.over != "all":
            raise InputError(
                f"[model] denoise takes away what the prompt alone gives, but {pooler} pools the text; take a pooler "
                f"of the prompt, such as 'last @ mask in means'"
            )
    tokenizers = [prompt_tokenizer(encoder, prompt, max_length=recipe.data.max_length) for prompt in prompts]
    return Denoiser(encoder, tokenizers)


class _PoolerViews:
    """Selects the pooler's views: (rows, poolings, layers, width) -> (rows, fewer poolings, fewer layers, width)"""

    def __init__(self, pooler: Mix, layers: list[int], poolings: list[str]) -> None:
        self.poolings = [poolings.index(name) for name in pooler.poolings]
        self.layers = [layers.index(layer) for layer in pooler.layers]
        self.is_all = (len(self.poolings), len(self.layers)) == (len(poolings), len(layers))

    def __call__(self, views: Tensor) -> Tensor:
        if self.is_all:
            return views
        # No indexing by lists: they would be copied to the GPU at every step, which CUDA graphs do not allow.
        by_pooling = (torch.stack([views[:, pooling, layer] for layer in self.layers], 1) for pooling in self.poolings)
        return torch.stack(list(by_pooling), dim=1)


def _by_column(rows: Tensor, columns: int) -> Tensor:
    """(columns · b, …) -> (columns, b, …)"""
    return rows.reshape(columns, len(rows) // columns, *rows.shape[1:])


def _gather_columns(columns: Tensor) -> Tensor:
    """(columns, b, …) of this process -> (columns, n, …) of all processes"""
    return gather_rows(columns.transpose(0, 1).contiguous()).transpose(0, 1)
