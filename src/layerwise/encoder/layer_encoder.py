"""LayerEncoder: an encoder whose every layer can be read in one pass."""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self, overload

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from layerwise.digests import text_digest
from layerwise.encoder.arguments import check_sentences, checked_backend, checked_length, token_budget
from layerwise.encoder.arrays import Array
from layerwise.encoder.blocks import model_with_blocks
from layerwise.encoder.cache import ViewCache, ViewKey
from layerwise.encoder.dropout import dropout_on
from layerwise.encoder.fingerprint import model_fingerprint, tokenizer_fingerprint
from layerwise.encoder.folders import DEFAULT, ModelFolder, check_unchanged, find_model
from layerwise.encoder.int8_reader import Int8Reader
from layerwise.encoder.load import load_encoder, pick_device
from layerwise.encoder.onnx import OnnxReader
from layerwise.encoder.packing import packing_reader
from layerwise.encoder.pooling import ViewPool
from layerwise.encoder.prompts import PLAIN, Prompt, by_prompt, parse_pooling
from layerwise.encoder.streaming import (
    Forward,
    Progress,
    no_progress,
    stream,
    window_rows,
    windows_of,
)
from layerwise.encoder.taps import (
    LayerReader,
    TappedLayers,
    layer_reader,
    make_recordable,
    resolve_layer,
    without_hooks,
)
from layerwise.encoder.tokens import PromptTokenizer, SentenceTokenizer, Spans
from layerwise.errors import InputError, ModelError
from layerwise.threads import cores_here, survive_fork

log = logging.getLogger(__name__)


class LayerEncoder:
    """A transformer encoder with access to all its layers.

    Args:
        name_or_folder: A folder, a hub name, or nothing for the embedded default, all-MiniLM-L6-v2.
        device: Such as "cpu", "cuda:1", "mps"; without it a GPU where there is one.
        dtype: "float32", "bfloat16" or "float16" for weights and states; pooled vectors are float32 always.
        max_length: Tokens beyond this are cut; at most, and without it, what the model was made for.
        tokens_per_batch: The token budget of a batch; halved by itself when memory runs short.
        backend: "torch" (the default), or "onnx" for ONNX Runtime: on a CPU the same numbers in less time.
        precision: "float", or "int8" for int8 weights and activations on a CPU, by ONNX Runtime: faster, with a loss
            that is measured when the graph is made, and logged whenever it is loaded.
        revision: A branch, tag or commit of a hub model.
        trust_remote_code: Run Python code that comes with the model. Off: such a model is refused.

    >>> encoder = LayerEncoder()
    >>> encoder.depth, encoder.width
    (6, 384)
    """

    def __init__(
        self,
        name_or_folder: str | os.PathLike[str] = DEFAULT,
        *,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        max_length: int | None = None,
        tokens_per_batch: int | None = None,
        backend: str | None = None,
        precision: str = "float",
        revision: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.folder: ModelFolder = find_model(name_or_folder, revision=revision, trust_remote_code=trust_remote_code)
        check_unchanged(self.folder)
        self.device = pick_device("cpu" if device is None and precision == "int8" else device)
        self.dtype = dtype
        self.precision = precision
        self.backend = checked_backend(backend, precision, self.device, dtype)
        loaded = load_encoder(self.folder, dtype=dtype, device=self.device, trust_remote_code=trust_remote_code)
        self.model: nn.Module = loaded.model
        self.tokenizer: Any = loaded.tokenizer
        self._max_length = checked_length(max_length, self.tokenizer, loaded.max_length)
        self.budget = token_budget(tokens_per_batch, self.device)
        self._sentences = SentenceTokenizer(self.tokenizer, max_length=self.max_length)
        self._prompted: dict[Prompt, PromptTokenizer] = {}
        self._loaded_depth: int | None = None
        self._fingerprint: tuple[str, str] | None = None
        self._onnx = self._onnx_reader() if self.backend == "onnx" else None

    @property
    def max_length(self) -> int:
        """Tokens beyond this are cut. Fixed when the encoder is made, for cached views are known by it."""
        return self._max_length

    @property
    def name(self) -> str:
        """What the encoder was asked for by."""
        return self.folder.name

    @cached_property
    def reader(self) -> LayerReader:
        """How layers are read: tapped where that provably equals the model's hidden states, packed where that does."""
        survive_fork()
        reader = layer_reader(self.model)
        can_pack = self.device.type == "cuda" and self.dtype in ("float16", "bfloat16")
        return packing_reader(reader) if can_pack and isinstance(reader, TappedLayers) else reader

    @property
    def depth(self) -> int:
        """The number of the last layer; there are depth + 1 of them."""
        return self.reader.depth

    @property
    def loaded_depth(self) -> int:
        """The depth of the encoder that was loaded, of which `with_blocks` may have left out blocks."""
        return self._loaded_depth or self.depth

    def with_blocks(self, kept: Sequence[int]) -> Self:
        """An encoder of some of the blocks, numbered from 1, in rising order, with a copy of the weights."""
        if self._onnx is not None:
            raise InputError("Blocks are left out with the torch backend only, not with ONNX or int8")
        if not isinstance(self.reader, TappedLayers) or len(self.reader.blocks) != self.depth:
            raise ModelError(f"{self.name}: its blocks share their weights or are unknown, so none can be left out")
        shorter = object.__new__(type(self))
        vars(shorter).update({name: value for name, value in vars(self).items() if name != "reader"})
        shorter.model = model_with_blocks(self.model, self.reader.blocks, kept)
        shorter._loaded_depth, shorter._fingerprint = self.loaded_depth, None
        return shorter

    @property
    def width(self) -> int:
        """The length of a layer's vectors."""
        return int(self.model.config.hidden_size)  # type: ignore[union-attr, arg-type]

    @overload
    def encode_layers(  # type: ignore[overload-overlap] # a str is a sequence of str too
        self,
        sentences: Sequence[str],
        pooling: str = ...,
        *,
        layers: Sequence[int] | None = ...,
        cache: ViewCache | bool = ...,
        dropout_seed: int | None = ...,
        show_progress_bar: bool = ...,
    ) -> Array: ...

    @overload
    def encode_layers(
        self,
        sentences: Sequence[str],
        pooling: Sequence[str],
        *,
        layers: Sequence[int] | None = ...,
        cache: ViewCache | bool = ...,
        dropout_seed: int | None = ...,
        show_progress_bar: bool = ...,
    ) -> dict[str, Array]: ...

    def encode_layers(
        self,
        sentences: Sequence[str],
        pooling: str | Sequence[str] = "mean",
        *,
        layers: Sequence[int] | None = None,
        cache: ViewCache | bool = False,
        dropout_seed: int | None = None,
        show_progress_bar: bool = False,
    ) -> Array | dict[str, Array]:
        """The pooled vectors of every layer: (sentences, layers + 1, width), float32.

        Args:
            sentences: The texts. Empty ones are encoded as the model's special tokens alone, with a warning.
            pooling: "mean", "cls", "max", "last", "weighted-mean" or "mean-but-first", or one of these in a prompt,
                such as 'last in eol' or 'mean in "Topic: {text}"'; several give a dict of arrays, from one pass a
                prompt.
            layers: Only these layers, in this order; negative numbers count from the last. The blocks above the
                highest are not run.
            cache: True, or a `ViewCache`, to keep the views of all layers on disk and read them from there.
            dropout_seed: Run with the encoder's dropout on, by this seed; such views are not cached.
            show_progress_bar: Show one.
        """
        texts = check_sentences(sentences)
        names = [pooling] if isinstance(pooling, str) else list(dict.fromkeys(pooling))
        if not names or (layers is not None and not len(layers)):
            raise InputError("encode_layers needs at least one pooling and one layer")
        picked = [resolve_layer(layer, self.depth) for layer in (range(self.depth + 1) if layers is None else layers)]
        if cache and dropout_seed is None:
            store = cache if isinstance(cache, ViewCache) else ViewCache()
            views = self._cached_views(texts, names, store, show_progress_bar)
            if picked != list(range(self.depth + 1)):
                views = {name: np.asarray(array[:, picked]) for name, array in views.items()}
        else:
            views = {n: np.empty((len(texts), len(picked), self.width), dtype=np.float32) for n in names}
            with nullcontext() if dropout_seed is None else self._dropout_on(dropout_seed):
                self._fill(views, texts, picked, show_progress_bar)
        return views[pooling] if isinstance(pooling, str) else views

    def stream(
        self,
        windows: Iterable[Sequence[str]],
        forward: Forward,
        *,
        prompt: Prompt = PLAIN,
        only_reads: bool = False,
        progress: Progress = no_progress,
        on_tokens: Progress = no_progress,
    ) -> Iterator[Array]:
        """Run `forward(tokens, mask)` over windows of sentences: one array each, rows in the sentences' order.

        Within a prompt, `forward` also gets the places of the tokens that are pooled, for `read`. With `only_reads`, it
        uses the model through `read` alone, so that ONNX Runtime can run several batches at a time, on one core each.
        `on_tokens` is called with the number of tokens of each window.
        """
        survive_fork()
        runs_by_onnx = only_reads and prompt.is_plain and self._onnx is not None
        yield from stream(
            windows,
            tokenizer=self._sentences if prompt.is_plain else self.prompted(prompt),
            pad_id=int(self.tokenizer.pad_token_id or 0),
            forward=forward,
            device=self.device,
            budget=self.budget,
            may_pad=self.reader.ignores_padding,
            packs=self.reader.packs,
            workers=cores_here() if runs_by_onnx else 1,
            progress=progress,
            on_tokens=on_tokens,
        )

    def prompted(self, prompt: Prompt) -> PromptTokenizer:
        """The tokenizer of sentences within a prompt; one that this model cannot take is refused."""
        if self.precision == "int8":
            raise InputError("Prompts are read in float, not with precision int8; leave it out")
        if prompt not in self._prompted:
            self._prompted[prompt] = PromptTokenizer(
                self.tokenizer, prompt, max_length=self.max_length, model=self.name
            )
        return self._prompted[prompt]

    def token_counts(self, texts: Sequence[str], prompt: Prompt = PLAIN) -> list[int]:
        """How many tokens each text has, within a prompt or alone."""
        tokenizer = self._sentences if prompt.is_plain else self.prompted(prompt)
        return list(map(int, tokenizer(texts).lengths))

    def spans(self, text: str, prompt: Prompt = PLAIN) -> Spans | None:
        """The text as it is tokenised, within its prompt, and where each token stands in it; None if unknown."""
        return self._sentences.spans(text) if prompt.is_plain else self.prompted(prompt).spans(text)

    def read(
        self,
        tokens: Tensor,
        mask: Tensor,
        layers: Sequence[int],
        poolings: Sequence[str],
        places: Tensor | None = None,
    ) -> Tensor:
        """One batch's views, as the model's device has them: (batch, poolings, layers, width).

        `poolings` are of one prompt; `places` (batch, 3) are those of its tokens that are pooled, as `stream` gives.
        Prompts are read by torch, whatever the backend.
        """
        if self._onnx is None or places is not None:
            return self._read_torch(tokens, mask, layers, poolings, places)
        return self._onnx.read(tokens, mask, layers, poolings)

    def read_states(self, tokens: Tensor, mask: Tensor, layers: Sequence[int], token_mask: Tensor) -> Tensor:
        """One batch's states of the tokens in `token_mask` (batch, tokens), by torch: (tokens in it, layers, width)."""
        inputs = {"input_ids": tokens, "attention_mask": mask}
        states = self.reader.read(inputs, set(layers), lambda layer_states: layer_states[token_mask])
        return torch.stack([states[layer] for layer in layers], dim=1)

    def _read_torch(
        self,
        tokens: Tensor,
        mask: Tensor,
        layers: Sequence[int],
        poolings: Sequence[str],
        places: Tensor | None = None,
    ) -> Tensor:
        return read_views(self.reader, tokens, mask, layers, poolings, places)

    def fingerprint(self) -> tuple[str, str]:
        """Hashes of the weights as they are now and of the tokenizer."""
        return self._fingerprint or (model_fingerprint(self.model), tokenizer_fingerprint(self.tokenizer))

    @contextmanager
    def known_as(self, fingerprint: tuple[str, str]) -> Iterator[None]:
        """Take a fingerprint as it is while this lasts: hashing the weights takes longer than encoding few texts."""
        before, self._fingerprint = self._fingerprint, fingerprint
        try:
            yield
        finally:
            self._fingerprint = before

    @property
    def arithmetic(self) -> str:
        """The backend and, in int8, a digest of how each layer is quantised: views of another one are not mixed."""
        if isinstance(self._onnx, Int8Reader):
            return f"onnx-int8-{self._onnx.plan.digest[:16]}"
        return self.backend

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: hooks and ONNX sessions stay here, and are made again when they are needed."""
        left_out = {"reader", "_onnx"}
        state = {name: value for name, value in vars(self).items() if name not in left_out}
        return state | {"model": without_hooks(self.model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        make_recordable(self.model)
        self._onnx = self._onnx_reader() if self.backend == "onnx" else None

    def __sklearn_clone__(self) -> Self:
        """Shared by scikit-learn's clones: fitting an estimator changes nothing here."""
        return self

    def __repr__(self) -> str:
        facts = f"depth={self.depth}, width={self.width}, max_length={self.max_length}"
        backend = "" if self.backend == "torch" else f", backend={self.backend!r}"
        if self.precision != "float":
            backend += f", precision={self.precision!r}"
        return f"LayerEncoder({self.name!r}, {facts}, dtype={self.dtype!r}, device={str(self.device)!r}{backend})"

    def check_finite(self, embeddings: Array) -> None:
        """Refuse embeddings (texts, width) that are not finite, as half precision makes them where it overflows."""
        finite = np.isfinite(embeddings)
        if not finite.all():
            rows = int((~finite.all(1)).sum())
            raise ModelError(
                f"{self.name}: {rows} of {len(embeddings)} embeddings have NaN or infinite numbers in {self.dtype}; "
                f"{self._remedy}"
            )

    @property
    def _remedy(self) -> str:
        return "use dtype bfloat16 or float32" if self.dtype == "float16" else "check the model's weights"

    def _onnx_reader(self) -> OnnxReader:
        fingerprint = partial(model_fingerprint, self.model)  # taken when a graph is looked up, not before
        if self.precision == "float":
            return OnnxReader(self.model, self._read_torch, fingerprint, max_length=self.max_length)
        return Int8Reader(
            self.model,
            self._read_torch,
            fingerprint,
            max_length=self.max_length,
            depth=self.depth,
            encode_by=lambda forward, texts: np.concatenate(list(self.stream([texts], forward))),
        )

    def _dropout_on(self, seed: int) -> AbstractContextManager[None]:
        if self._onnx is not None:
            raise InputError("Dropout runs with the torch backend only, not with ONNX or int8")
        return dropout_on(self.model, seed)

    def _fill(self, views: dict[str, Array], texts: Sequence[str], layers: Sequence[int], bar: bool) -> None:
        """Write the views of all poolings, from one pass a prompt, into arrays in memory or on disk."""
        passes = by_prompt(views)  # an unknown pooling is refused before any work
        for prompt in passes:
            if not prompt.is_plain:
                self.prompted(prompt)  # and so is a prompt that does not fit
        finite = np.ones(len(layers), dtype=bool)
        with tqdm(total=len(texts) * len(passes), unit="sentence", desc="Layers") if bar else nullcontext() as shown:
            for prompt, names in passes.items():
                start, rows = 0, window_rows(4 * len(names) * len(layers) * self.width)
                for part in self.stream(
                    windows_of(texts, rows),
                    partial(self._read_float, layers=layers, poolings=names),
                    prompt=prompt,
                    only_reads=True,
                    progress=no_progress if shown is None else shown.update,
                ):
                    for number, name in enumerate(names):
                        views[name][start : start + len(part)] = part[:, number]
                    finite &= np.isfinite(part).all((0, 1, 3))
                    start += len(part)
        if not finite.all():
            broken = ", ".join(str(layer) for layer, whole in zip(layers, finite, strict=True) if not whole)
            log.warning("%s: NaN or infinite numbers in layers %s; %s", self.name, broken, self._remedy)

    def _read_float(
        self, tokens: Tensor, mask: Tensor, places: Tensor | None = None, *, layers: Sequence[int], poolings: list[str]
    ) -> Tensor:
        return self.read(tokens, mask, layers, poolings, places).float()

    def _cached_views(
        self, texts: Sequence[str], names: Sequence[str], store: ViewCache, bar: bool
    ) -> dict[str, Array]:
        keys = self._view_keys(names, texts)
        cached = {name: views for name, key in keys.items() if (views := store.get(key)) is not None}
        missing = [name for name in names if name not in cached]
        if cached and isinstance(self._onnx, Int8Reader):
            self._onnx.log_loss(range(self.depth + 1), [parse_pooling(name).pooling for name in names])

        def fill(arrays: Sequence[Array]) -> None:
            self._fill(dict(zip(missing, arrays, strict=True)), texts, range(self.depth + 1), bar)

        if missing:
            built = store.put_all([keys[name] for name in missing], fill, label=self.name)
            cached |= dict(zip(missing, built, strict=True))
        return {name: cached[name] for name in names}

    def _view_keys(self, names: Sequence[str], texts: Sequence[str]) -> dict[str, ViewKey]:
        model, tokenizer = self.fingerprint()
        common = ViewKey(
            model=model,
            tokenizer=tokenizer,
            texts=text_digest(texts),
            pooling="",
            max_length=self.max_length,
            dtype=self.dtype,
            backend=self.arithmetic,
            shape=(len(texts), self.depth + 1, self.width),
        )
        return {name: replace(common, pooling=parse_pooling(name).full) for name in names}


def read_views(
    reader: LayerReader,
    tokens: Tensor,
    mask: Tensor,
    layers: Sequence[int],
    poolings: Sequence[str],
    places: Tensor | None = None,
    *,
    positions: Tensor | None = None,
) -> Tensor:
    """One batch's views of any model that a reader reads, as `LayerEncoder.read` gives those of its own.

    `positions` (batch, tokens) are the tokens' position ids where they do not simply follow each other.
    """
    pool = ViewPool([parse_pooling(name).pooling for name in poolings], mask, places)
    inputs = {"input_ids": tokens, "attention_mask": mask}
    pooled = reader.read(inputs if positions is None else inputs | {"position_ids": positions}, set(layers), pool)
    return torch.stack([pooled[layer] for layer in layers], dim=2)
