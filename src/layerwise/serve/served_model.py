"""A served model: turns requests into jobs for the batcher."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar, cast

import numpy as np

from layerwise.encoder import (
    PLAIN,
    Array,
    Prompt,
    PromptTokenizer,
    SentenceTokenizer,
    Tokens,
    check_sentences,
    parse_pooling,
)
from layerwise.errors import LayerwiseError
from layerwise.mixes import Concat, Mix, parse_mix
from layerwise.model import LayerModel
from layerwise.predict import Predictor
from layerwise.serve.api_errors import ApiError
from layerwise.serve.jobs import Job, MixedModel, TextPass

ALL = "all"
Texts = Sequence[str] | Sequence[Sequence[int]]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_MIXES, _PROMPTS = 256, 16


@dataclass(frozen=True)
class Options:
    """A request's options: how its texts are embedded."""

    layers: str | None = None
    pooling: str | None = None
    prompt_name: str | None = None
    truncate: bool = False
    normalize: bool | None = None
    dimensions: int | None = None

    @property
    def every_layer(self) -> bool:
        """Whether to return each layer's vector instead of a mix."""
        return self.layers is not None and self.layers.strip() == ALL


class ServedModel:
    """A model with its tokenizers and the recently requested mixes.

    Args:
        name: Its name in requests.
        model: A model, or a predictor whose tasks are served too.
        max_counted: Up to how many tokens a text is counted for the error about its length.
    """

    def __init__(self, name: str, model: LayerModel | Predictor, *, max_counted: int = 65_536) -> None:
        self.name = name
        self.predictor = model if isinstance(model, Predictor) else None
        self.model = model.model if isinstance(model, Predictor) else model
        self.encoder = self.model.encoder
        self.layer_width = self.encoder.width
        self._max_counted = max(max_counted, self.encoder.max_length)
        self._plain = SentenceTokenizer(self.encoder.tokenizer, max_length=self.encoder.max_length)
        self._tasks: dict[int, SentenceTokenizer] = {self.encoder.max_length: self._plain}
        self._default = MixedModel.of(self.model)
        self._mixed: _LRUCache[tuple[str | None, str | None], MixedModel] = _LRUCache(_MIXES)
        self._prompted: _LRUCache[Prompt, PromptTokenizer] = _LRUCache(_PROMPTS)
        self._making = Lock()  # of tokenizers, each of which sets the model's own for a moment

    @property
    def tokenises_in_threads(self) -> bool:
        """Whether several threads may tokenise at the same time."""
        return self._plain.is_thread_safe

    def model_for(self, options: Options) -> MixedModel:
        """Return the model with the requested mix."""
        if options.layers is None and options.pooling is None:
            return self._default
        return self._mixed.get((options.layers, options.pooling), lambda: self._with_mix(options))

    def job(self, texts: Texts, options: Options, *, max_length: int | None = None) -> Job:
        """Tokenise texts; raise for a text beyond the limit unless truncation is requested."""
        mixed = self.model_for(options)
        if options.dimensions is not None:
            _check_dimensions(options.dimensions, self.encoder.width if options.every_layer else mixed.width)
        prefix = _with_param("prompt_name", lambda: mixed.model.prompt(options.prompt_name))
        if _is_tokens(texts):
            return Job(mixed, self._token_passes(mixed, texts, prefix, options))  # type: ignore[arg-type]
        sentences = check_sentences([prefix + str(text) for text in texts] if prefix else texts)  # type: ignore[arg-type]
        passes = tuple(
            TextPass(prompt, self._tokens(prompt, sentences, options, max_length), needs)
            for prompt, needs in mixed.needs.items()
        )
        return Job(mixed, passes)

    def vectors(self, embeddings: Array, options: Options) -> Array:
        """Reshape and normalise a job's embeddings as requested: (texts, vectors per text, width)."""
        count = self.encoder.depth + 1 if options.every_layer else 1
        vectors = embeddings.reshape(len(embeddings), count, -1)[:, :, : options.dimensions]
        if self._normalizes(options):
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return np.ascontiguousarray(vectors)

    def _normalizes(self, options: Options) -> bool:
        """Whether to normalise vectors: on request, or if truncating dimensions changed their unit length."""
        if options.normalize is not None:
            return options.normalize
        return options.dimensions is not None and self.model_for(options).model.normalize

    def _with_mix(self, options: Options) -> MixedModel:
        param = "layers" if options.layers is not None else "pooling"
        model = _with_param(param, lambda: self.model.with_mix(self._mix(options)))
        if model.mix.is_prompted and self.encoder.precision == "int8":
            raise ApiError(422, "prompts are read in float; this server runs int8", param=param)
        return MixedModel.of(model)

    def _mix(self, options: Options) -> Mix:
        pooling = options.pooling
        if pooling is not None:
            parse_pooling(pooling)
        if options.every_layer:
            return Concat.of(*range(self.encoder.depth + 1), pooling=pooling or self.model.mix.pooling)
        if options.layers is not None:
            return parse_mix(options.layers, pooling=pooling or "mean")
        return self.model.mix.with_pooling(str(pooling))

    def _tokens(self, prompt: Prompt, texts: list[str], options: Options, max_length: int | None) -> Tokens:
        tokenizer = self._tokenizer(prompt, max_length)
        tokens = tokenizer(texts)
        if tokens.truncated and not options.truncate:
            raise self._too_long(tokenizer, texts)
        return tokens

    def _tokenizer(self, prompt: Prompt, max_length: int | None) -> SentenceTokenizer | PromptTokenizer:
        limit = self.encoder.max_length
        if prompt.is_plain:
            length = min(max_length or limit, limit)
            if length not in self._tasks:
                self._tasks[length] = self._tokenizer_of(length)
            return self._tasks[length]
        return self._prompted.get(prompt, lambda: self._prompt_tokenizer_of(prompt))

    def _tokenizer_of(self, max_length: int) -> SentenceTokenizer:
        with self._making:
            return SentenceTokenizer(self.encoder.tokenizer, max_length=max_length)

    def _prompt_tokenizer_of(self, prompt: Prompt) -> PromptTokenizer:
        with self._making:
            return PromptTokenizer(self.encoder.tokenizer, prompt, max_length=self.encoder.max_length, model=self.name)

    def _too_long(self, tokenizer: SentenceTokenizer | PromptTokenizer, texts: list[str]) -> ApiError:
        number = next(row for row, text in enumerate(texts) if tokenizer([text]).truncated)
        counting = self._tokenizer_of(self._max_counted)
        count = len(counting([texts[number]]).numbers)
        within = "" if isinstance(tokenizer, SentenceTokenizer) else " with its prompt"
        prefix = "at least " if count == self._max_counted else ""
        return ApiError(
            422,
            f"input {number} has {prefix}{count} tokens and {self.name} takes at most {tokenizer.max_length}{within};"
            f' shorten or split it, or send "truncate": true',
            param="input",
            code="context_length_exceeded",
        )

    def _token_passes(
        self, mixed: MixedModel, ids: Sequence[Sequence[int]], prefix: str, options: Options
    ) -> tuple[TextPass, ...]:
        if prefix or mixed.model.mix.is_prompted:
            raise ApiError(422, "token numbers cannot be put into a prompt; send texts", param="input")
        limit, vocabulary = self.encoder.max_length, int(self.encoder.model.config.vocab_size)  # type: ignore[union-attr, arg-type]
        for number, row in enumerate(ids):
            if not all(0 <= token < vocabulary for token in row):
                raise ApiError(
                    422,
                    f"input {number} has token numbers beyond 0 to {vocabulary - 1}; they are of the tokenizer of "
                    f"{self.name}, special tokens included; send texts if in doubt",
                    param="input",
                )
            if len(row) > limit and not options.truncate:
                raise ApiError(
                    422,
                    f"input {number} has {len(row)} tokens and {self.name} takes at most {limit}; shorten or split it, "
                    f'or send "truncate": true',
                    param="input",
                    code="context_length_exceeded",
                )
        tokens = Tokens.of(row[:limit] for row in ids)
        return (TextPass(PLAIN, tokens, mixed.needs[PLAIN]),)


class _LRUCache(Generic[K, V]):
    """A thread-safe LRU cache of bounded size, so that clients cannot exhaust the memory."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
                if len(self._values) > self._max_size:
                    self._values.popitem(last=False)
            self._values.move_to_end(key)
            return self._values[key]


def _is_tokens(texts: Texts) -> bool:
    return not isinstance(texts[0], str)


def _with_param(param: str, make: Callable[[], V]) -> V:
    """Call `make`, attributing its errors to a field of the request."""
    try:
        return make()
    except LayerwiseError as error:
        raise ApiError(422, str(error), param=param) from error


def _check_dimensions(dimensions: int, width: int) -> None:
    if dimensions > width:
        message = f"dimensions {dimensions} is not possible: embeddings have {width} numbers; ask for 1 to {width}"
        raise ApiError(422, message, param="dimensions")


def texts_of(value: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]) -> Texts:
    """Convert OpenAI's `input`, one or several texts or token lists, to a list; raise for an empty text."""
    is_single = isinstance(value, str) or isinstance(value[0], int)
    texts = cast(Texts, [value] if is_single else value)
    for number, text in enumerate(texts):
        if not (text.strip() if isinstance(text, str) else text):
            raise ApiError(422, f"input {number} is empty; leave it out", param="input")
    return texts
