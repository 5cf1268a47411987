"""LayerModel: an encoder and a layer mix that encode like a SentenceTransformer."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, overload

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from layerwise.digests import json_digest, tensor_digest
from layerwise.encoder import (
    DEFAULT,
    Array,
    LayerEncoder,
    Progress,
    by_prompt,
    check_sentences,
    no_progress,
    window_rows,
    windows_of,
)
from layerwise.errors import InputError, MixError, ModelError
from layerwise.mixes import Mix, parse_mix, without_last_token
from layerwise.model.head import AnyHead, check_widths, head_of
from layerwise.model.load import load_parts
from layerwise.model.parts import ModelParts
from layerwise.model.save import push_to_hub, save_model
from layerwise.model.sentence_transformer import to_sentence_transformer
from layerwise.postprocess import FittedOn, Postprocess
from layerwise.registry import check_known, unknown

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
Embeddings: TypeAlias = NDArray[Any]  # float32, or integers where `precision` asks for them
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_NO_PROMPTS = {"query": "", "document": ""}  # as in sentence-transformers, both names are always there
_ROWS = 8192  # of views that are mixed at once
_OF_THE_HOST = {"device": None, "pool": None, "chunk_size": None, "output_value": "sentence_embedding"}


class LayerModel:
    """Sentence embeddings by a mix of an encoder's layers.

    Args:
        encoder: A `LayerEncoder`, or what makes one: a folder, a hub name.
        mix: A layer mix or its text, such as "1,2,12 @ mean".
        heads: What follows the mix, in order: linear layers, flows.
        normalize: Make every embedding's length 1.
        prompts: Texts put before a sentence, by name.
        default_prompt_name: The prompt for `encode` where the caller names none.
        similarity: How embeddings are compared: "cosine", "dot", "euclidean" or "manhattan".
        truncate_dim: Keep only so many of the first dimensions of every embedding (Matryoshka models).
        chosen: How the mix was chosen, for the model card.
        fitted_on: The text that any part was fitted or trained on, for the model card and for honest evaluation.
        training: Facts about the training (recipe, data, seeds, scores, …), saved with the model and shown in its card.

    >>> model = LayerModel("default", "1,6 @ mean")
    >>> model.encode(["A cat sat.", "It rained."]).shape
    (2, 384)
    """

    def __init__(
        self,
        encoder: LayerEncoder | str | os.PathLike[str] = DEFAULT,
        mix: Mix | str = "last",
        *,
        heads: Sequence[AnyHead] = (),
        normalize: bool = False,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity: str = "cosine",
        truncate_dim: int | None = None,
        chosen: str = "by hand",
        fitted_on: Sequence[FittedOn] = (),
        training: dict[str, Any] | None = None,
    ) -> None:
        check_known(similarity, _SIMILARITIES, "similarity")
        self.encoder = encoder if isinstance(encoder, LayerEncoder) else LayerEncoder(encoder)
        self.mix: Mix = _prepared_mix(mix, self.encoder)
        self.heads = tuple(head.to(self.encoder.device) for head in heads)
        self.normalize = normalize
        self.prompts = _NO_PROMPTS | dict(prompts or {})
        self.default_prompt_name = default_prompt_name
        self.similarity_fn_name = similarity
        self.truncate_dim: int | None = None
        self.chosen = chosen
        self.fitted_on = tuple(fitted_on)
        self.training = _json_copy(training)
        check_widths(self.mix.width(self.encoder.width), self.heads)
        self.truncate_dim = truncate_dim if truncate_dim is None else self.truncated_width(truncate_dim)
        self.prompt()  # an unknown default is refused now, not by the first sentence

    @classmethod
    def load(
        cls,
        name_or_folder: str | os.PathLike[str] = DEFAULT,
        *,
        mix: Mix | str | None = None,
        **options: Any,
    ) -> Self:
        """Load a saved model, any sentence-transformers folder or name, or an encoder (mean of its last layer).

        Args:
            name_or_folder: As for `LayerEncoder`.
            mix: Replace the model's mix; the heads, normalising and truncation that follow it are then left out.
            options: As for `LayerEncoder`: device, dtype, max_length, …
        """
        encoder = LayerEncoder(name_or_folder, **options)
        parts = load_parts(encoder.folder)
        if mix is not None:
            parts = parts.with_mix(parse_mix(mix) if isinstance(mix, str) else mix)
        return cls(encoder, **parts.as_dict())

    def with_mix(self, mix: Mix | str) -> Self:
        """Return the model with another mix, without heads, normalisation and truncation."""
        parts = self.parts.with_mix(parse_mix(mix) if isinstance(mix, str) else mix)
        return type(self)(self.encoder, **parts.as_dict())

    def at_exit(self, layer: int, truncate_dim: int | None = None) -> Self:
        """The model cut at a layer, by the same token pooling and without heads, and at a number of dimensions."""
        poolings = self.mix.poolings
        if len(poolings) != 1:
            raise ModelError(f"{self.mix} pools tokens in several ways; choose one with with_mix")
        cut = self.with_mix(f"{layer} @ {poolings[0]}")
        return cut if truncate_dim is None else cut.replaced(truncate_dim=truncate_dim)

    def with_postprocess(self, fitted: Postprocess) -> Self:
        """Return the model with an additional head, fitted on this model's embeddings, and the record of its text.

        Such as `Whitening(256).fit(model.encode(texts), fitted_on=FittedOn.of(texts, source="my texts"))`.
        """
        fitted.check_fitted()
        if self.normalize:
            raise ModelError("Embeddings of length 1 cannot be transformed; fit on a model with normalize=False")
        if self.truncate_dim is not None:
            raise ModelError("Truncated embeddings cannot be transformed; fit on a model with truncate_dim=None")
        return self.replaced(heads=(*self.heads, head_of(fitted)), fitted_on=(*self.fitted_on, fitted.fitted_on_))

    def replaced(self, **parts: Any) -> Self:
        """The same encoder with other parts, named as in the constructor; what is not named stays."""
        return type(self)(self.encoder, **self.parts.as_dict() | parts)

    @property
    def parts(self) -> ModelParts:
        """All parts except the encoder."""
        named = {part.name: getattr(self, part.name) for part in fields(ModelParts) if part.name != "similarity"}
        return ModelParts(**named, similarity=self.similarity_fn_name)

    @property
    def width(self) -> int:
        """The length of an embedding."""
        return self.parts.width(self.encoder.width)

    def digest(self, arithmetic: str | None = None) -> str:
        """Return a hash of everything that determines embeddings, computed from the current weights.

        `arithmetic` is that of the encoder, or another: the same model with another backend is told by it.
        """
        encoder = self.encoder
        arithmetic = arithmetic or encoder.arithmetic
        settings = [encoder.max_length, encoder.dtype, arithmetic, self.prompts, self.default_prompt_name]
        return json_digest([*encoder.fingerprint(), *settings, self.mix_digest()])

    def mix_digest(self) -> str:
        """Return a hash of the parts after the encoder: mix, heads, normalisation."""
        fitted = self.mix.fitted
        heads = [
            tensor_digest(head.state_dict(), label=f"{type(head).__name__} {head.activation}") for head in self.heads
        ]
        facts = [str(self.mix), "" if fitted is None else fitted.digest(), heads, self.normalize]
        return json_digest(facts if self.truncate_dim is None else [*facts, self.truncate_dim])

    @property
    def device(self) -> torch.device:
        """The encoder's device."""
        return self.encoder.device

    @property
    def tokenizer(self) -> Any:
        """The encoder's tokenizer."""
        return self.encoder.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Tokens beyond this are cut, under the host library's name."""
        return self.encoder.max_length

    @cached_property
    def model_card_data(self) -> "EvaluationRecord":
        """The object in which sentence-transformers' evaluators record their scores."""
        return EvaluationRecord(self)

    def get_embedding_dimension(self) -> int:
        """The length of an embedding, under the host library's name."""
        return self.width

    get_sentence_embedding_dimension = get_embedding_dimension  # the host library's former name

    @overload
    def encode(self, inputs: str | Sequence[str], *, convert_to_tensor: Literal[True], **options: Any) -> Tensor: ...

    @overload
    def encode(
        self, inputs: str | Sequence[str], *, convert_to_numpy: Literal[False], **options: Any
    ) -> Tensor | list[Tensor]: ...

    @overload
    def encode(
        self, inputs: str | Sequence[str], prompt_name: str | None = ..., prompt: str | None = ..., **options: Any
    ) -> Embeddings: ...

    def encode(
        self,
        inputs: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,  # noqa: ARG002 - callers of sentence-transformers pass it
        show_progress_bar: bool | None = False,
        precision: Precision | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        **others: Any,
    ) -> Embeddings | Tensor | list[Tensor]:
        """Compute embeddings of sentences, in order; a single string gives one vector.

        Args:
            inputs: The texts. Empty ones are encoded as the model's special tokens alone, with a warning.
            prompt_name: The name of a prompt to put before each.
            prompt: A prompt itself.
            batch_size: Taken for compatibility and not used: batches are made by tokens, see `LayerEncoder`.
            show_progress_bar: Show one.
            precision: "float32" (or None), or one of sentence-transformers' quantised kinds.
            convert_to_numpy: A numpy array; without it and `convert_to_tensor`, a list of tensors.
            convert_to_tensor: A tensor on the encoder's device.
            normalize_embeddings: Make every embedding's length 1.
            truncate_dim: Keep only so many of the first dimensions; without it, as the model says.
            others: What else `SentenceTransformer.encode` takes, at its default; another value is refused.
        """
        _check_others(others)
        single = isinstance(inputs, str)
        texts = check_sentences([inputs] if isinstance(inputs, str) else inputs)
        before = self.prompt(prompt_name, prompt)
        texts = [before + text for text in texts] if before else texts
        embeddings: Embeddings = np.empty((len(texts), self.truncated_width(truncate_dim)), dtype=np.float32)
        start = 0
        with tqdm(total=len(texts), unit="sentence", desc="Embedding") if show_progress_bar else nullcontext() as bar:
            for part in self.stream(
                windows_of(texts, window_rows(4 * embeddings.shape[1])),
                normalize=normalize_embeddings,
                truncate_dim=truncate_dim,
                progress=no_progress if bar is None else bar.update,
            ):
                embeddings[start : start + len(part)] = part
                start += len(part)
        if precision not in (None, "float32") and len(texts):
            from sentence_transformers.util.quantization import quantize_embeddings

            embeddings = np.asarray(quantize_embeddings(embeddings, precision=precision))
        if convert_to_numpy and not convert_to_tensor:
            return embeddings[0] if single else embeddings
        tensor = torch.from_numpy(embeddings).to(self.encoder.device)
        if single:
            return tensor[0]
        return tensor if convert_to_tensor else list(tensor)

    def encode_query(self, inputs: str | Sequence[str], **options: Any) -> Any:
        """`encode` with the prompt named "query", unless another is named."""
        return self.encode(inputs, **_with_prompt("query", options))

    def encode_document(self, inputs: str | Sequence[str], **options: Any) -> Any:
        """`encode` with the prompt named "document", unless another is named."""
        return self.encode(inputs, **_with_prompt("document", options))

    def stream(
        self,
        windows: Iterable[Sequence[str]],
        *,
        normalize: bool = False,
        truncate_dim: int | None = None,
        progress: Progress = no_progress,
        on_tokens: Progress = no_progress,
        check_finite: bool = True,
    ) -> Iterator[Array]:
        """Yield the embeddings of each window of texts; the next window is tokenised while the model runs.

        `on_tokens` is called with the number of tokens of each window. Embeddings that are not finite are refused,
        unless `check_finite` is False.
        """
        width = self.truncated_width(truncate_dim)

        def finish(embeddings: Tensor) -> Tensor:
            return F.normalize(embeddings[:, :width], dim=-1) if normalize else embeddings[:, :width]

        if self.mix.is_prompted:
            parts = self._stream_prompted(windows, finish, progress, on_tokens)
        else:
            parts = self.encoder.stream(
                windows,
                lambda *batch: finish(self.forward(*batch)),
                only_reads=True,
                progress=progress,
                on_tokens=on_tokens,
            )
        for embeddings in parts:
            if check_finite:
                self.encoder.check_finite(embeddings)
            yield embeddings

    def _stream_prompted(
        self,
        windows: Iterable[Sequence[str]],
        finish: Callable[[Tensor], Tensor],
        progress: Progress,
        on_tokens: Progress,
    ) -> Iterator[Array]:
        """One pass a prompt over every window, no higher than its views need."""
        for window in windows:
            views = self._read_prompts(window)
            with torch.inference_mode():
                mixed = self.mix.combine(torch.from_numpy(views).to(self.encoder.device))
                embeddings = finish(self.apply_heads(mixed)).cpu().numpy()
            if on_tokens is not no_progress:
                passes = by_prompt(self.mix.poolings)
                on_tokens(sum(sum(self.encoder.token_counts(window, prompt)) for prompt in passes))
            progress(len(window))
            yield embeddings

    def _read_prompts(self, texts: Sequence[str]) -> Array:
        """Compute the views of a window's texts: (texts, poolings, layers, width), zeros where not needed."""
        needs, poolings, layers = self.mix.needs, list(self.mix.poolings), list(self.mix.layers)
        views = np.zeros((len(texts), len(poolings), len(layers), self.encoder.width), dtype=np.float32)
        for names in by_prompt(poolings).values():
            needed = sorted({layer for name in names for layer in needs[name]})
            read = self.encoder.encode_layers(texts, names, layers=needed)
            for name, array in read.items():
                views[:, poolings.index(name), [layers.index(layer) for layer in needed]] = array
        return views

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """One padded batch, (batch, tokens) twice, to embeddings (batch, width)."""
        if self.mix.reads_tokens:
            token_mask = without_last_token(mask)
            states = self.encoder.read_states(tokens, mask, self.mix.layers, token_mask)
            mixed = self.mix.combine_tokens(states, token_mask)
        else:
            mixed = self.mix.combine(self.encoder.read(tokens, mask, self.mix.layers, self.mix.poolings))
        return self.apply_heads(mixed.float())

    @torch.inference_mode()
    def embed_views(self, views: Mapping[str, Array]) -> Array:
        """Embeddings of texts whose layers were read before, as `encode` gives them.

        Views of all layers by token pooling, (texts, layers + 1, width) each -> (texts, width)
        """
        layers, poolings = list(self.mix.layers), [views[name] for name in self.mix.poolings]
        embeddings = np.empty((len(poolings[0]), self.width), dtype=np.float32)
        for start in range(0, len(embeddings), _ROWS):
            rows = slice(start, start + _ROWS)
            mixed = self.mix.combine(np.stack([part[rows][:, layers] for part in poolings], axis=1))
            tensor = torch.from_numpy(np.ascontiguousarray(mixed)).to(self.encoder.device)
            embeddings[rows] = self.apply_heads(tensor).cpu().numpy()
        return embeddings

    def apply_heads(self, embeddings: Tensor) -> Tensor:
        """Apply heads, normalisation and truncation to the mix's output: (n, any) -> (n, width)"""
        for head in self.heads:
            embeddings = head(embeddings)
        embeddings = F.normalize(embeddings, dim=-1) if self.normalize else embeddings
        return embeddings[:, : self.truncate_dim]

    def similarity(self, left: NDArray[Any] | Tensor, right: NDArray[Any] | Tensor) -> Tensor:
        """Compute the similarity of all embeddings of `left` with all of `right`: (n, d), (m, d) -> (n, m)."""
        from sentence_transformers.util import SimilarityFunction

        compare: Callable[..., Tensor] = SimilarityFunction.to_similarity_fn(self.similarity_fn_name)
        return compare(left, right)

    def similarity_pairwise(self, left: NDArray[Any] | Tensor, right: NDArray[Any] | Tensor) -> Tensor:
        """Compute the similarity of corresponding rows of `left` and `right`: (n, d), (n, d) -> (n,)."""
        from sentence_transformers.util import SimilarityFunction

        compare: Callable[..., Tensor] = SimilarityFunction.to_similarity_pairwise_fn(self.similarity_fn_name)
        return compare(left, right)

    def to_sentence_transformer(self) -> "SentenceTransformer":
        """Build a SentenceTransformer with a copy of the weights, and only the blocks that the mix needs."""
        return to_sentence_transformer(self.encoder, self.parts)[0]

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        extra: Callable[[Path], object] | None = None,
    ) -> None:
        """Write a sentence-transformers folder, whole or not at all.

        Set, weight and single-layer mixes are written with native modules, so that plain
        `SentenceTransformer(folder)` loads them. A folder that is not empty is refused unless `overwrite`.
        `extra` is called with the folder while it is built beside its place, to write more files into it.
        """
        save_model(self.encoder, self.parts, folder, overwrite=overwrite, extra=extra)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload as `SentenceTransformer.push_to_hub` does, with its options; gives the commit's address."""
        return push_to_hub(self.encoder, self.parts, repo_id, **options)

    def prompt(self, name: str | None = None, prompt: str | None = None) -> str:
        """Return the text to prepend to a sentence: the given prompt, a named one, or the default."""
        name = self.default_prompt_name if name is None else name
        if prompt is not None or name is None:
            return prompt or ""
        if name not in self.prompts:
            raise unknown("prompt", name, sorted(self.prompts))
        return self.prompts[name]

    def truncated_width(self, truncate_dim: int | None) -> int:
        """Return the width of embeddings after truncation."""
        if truncate_dim is None:
            return self.width
        if not 1 <= truncate_dim <= self.width:
            raise InputError(f"truncate_dim {truncate_dim} is not possible: embeddings have {self.width} dimensions")
        return truncate_dim

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the scores recorded by evaluators, which may not be picklable."""
        return {name: value for name, value in vars(self).items() if name != "model_card_data"}

    def __sklearn_clone__(self) -> Self:
        """Shared by scikit-learn's clones: fitting an estimator changes nothing here."""
        return self

    def __repr__(self) -> str:
        return f"LayerModel({self.encoder.name!r}, {str(self.mix)!r}, width={self.width})"


class EvaluationRecord:
    """The scores that evaluators reported, by evaluator, under the names that sentence-transformers' evaluators use."""

    def __init__(self, model: LayerModel) -> None:
        self._model = model
        self.eval_results_dict: dict[Any, dict[str, Any]] = {}

    @property
    def base_model(self) -> str:
        """A unique name, as sentence-transformers caches mined embeddings by it."""
        return f"{self._model.encoder.name} {self._model.digest()}"

    def set_evaluation_metrics(
        self,
        evaluator: Any,
        metrics: dict[str, Any],
        epoch: int = 0,  # noqa: ARG002 - the host's contract
        step: int = 0,  # noqa: ARG002
    ) -> None:
        """Keep the scores of an evaluator."""
        self.eval_results_dict[evaluator] = dict(metrics)


def _prepared_mix(mix: Mix | str, encoder: LayerEncoder) -> Mix:
    """The mix in the encoder's layer numbers. A network's weights are moved and set to evaluation in place."""
    resolved = (parse_mix(mix) if isinstance(mix, str) else mix).resolve(encoder.depth)
    if resolved.reads_tokens and encoder.backend == "onnx":
        raise MixError(f"{resolved} reads token states, which ONNX graphs don't give; use the torch backend")
    if resolved.is_learned and resolved.fitted is not None:
        if resolved.fitted.width != encoder.width:
            raise MixError(
                f"{resolved} has weights for layers of {resolved.fitted.width} numbers; this encoder's have "
                f"{encoder.width}"
            )
        resolved.fitted.to(encoder.device).float().eval()
    return resolved


def _check_others(others: Mapping[str, Any]) -> None:
    """Raise for options of `encode` that sentence-transformers does not have, and for unsupported values."""
    for name, value in others.items():
        if name not in _OF_THE_HOST:
            raise TypeError(f"LayerModel.encode() got an unexpected keyword argument {name!r}")
        if value != _OF_THE_HOST[name]:
            raise InputError(
                f"encode takes {name}={_OF_THE_HOST[name]!r} only, not {value!r}; to_sentence_transformer() has all "
                f"of sentence-transformers' options"
            )


def _with_prompt(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Add the prompt of this name to options of `encode`, unless they have one."""
    has_prompt = options.get("prompt") is not None or options.get("prompt_name") is not None
    return options if has_prompt else options | {"prompt_name": name}


def _json_copy(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """Normalise facts of a training to JSON types, so that saving and loading preserve them."""
    if facts is None:
        return {}
    if not isinstance(facts, Mapping):
        raise InputError(f"training is {facts!r}; give a dict of facts, such as {{'recipe': 'simcse', 'seed': 1}}")
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(facts), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"training holds what JSON cannot: {error}; give texts, numbers, lists and dicts") from error
    return copied
