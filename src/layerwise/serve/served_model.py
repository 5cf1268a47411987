"""A model as it is served: what a request asks of it becomes a job for the batcher."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar, cast

import numpy as np

from layerwise.encoder import (
    MASK,
    PLAIN,
    POOLINGS,
    Array,
    Prompt,
    PromptTokenizer,
    SentenceTokenizer,
    Tokens,
    by_prompt,
    check_sentences,
    parse_pooling,
)
from layerwise.errors import LayerwiseError, MixError
from layerwise.mixes import LayerConcat, LayerJoin, LayerMix, LayerViews, LayerWk, parse_mix
from layerwise.model import LayerModel
from layerwise.predict import Predictor
from layerwise.serve.api_errors import ApiError
from layerwise.serve.batch_plan import Needs
from layerwise.serve.jobs import Job, TextPass

ALL = "all"
Texts = Sequence[str] | Sequence[Sequence[int]]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_MIXES, _PROMPTS = 256, 16


@dataclass(frozen=True)
class Options:
    """How texts are embedded: what a request may say besides them."""

    layers: str | None = None
    pooling: str | None = None
    prompt_name: str | None = None
    truncate: bool = False
    normalize: bool | None = None
    dimensions: int | None = None

    @property
    def every_layer(self) -> bool:
        """Whether each layer's vector is wanted instead of a mix."""
        return self.layers is not None and self.layers.strip() == ALL


class ServedModel:
    """A model with its tokenizers and the mixes that were asked for.

    Args:
        name: What requests call it.
        model: A model, or a predictor whose tasks are served too.
        max_counted: Texts are counted up to so many tokens, for the error about a long one.
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
        self._mixed: _Recent[tuple[str | None, str | None], LayerModel] = _Recent(_MIXES)
        self._prompted: _Recent[Prompt, PromptTokenizer] = _Recent(_PROMPTS)

    def graphs(self) -> list[Needs]:
        """What ONNX reads: the layers of the model's own mix, or all; a graph for each, which takes long to make."""
        if self.encoder.backend != "onnx":
            return []
        own = (sorted(self.model.mix.layers), list(self.model.mix.poolings))
        return [own, (list(range(self.encoder.depth + 1)), [name for name in POOLINGS if name != MASK])]

    def model_for(self, options: Options) -> LayerModel:
        """The model with the mix that a request asks for."""
        if options.layers is None and options.pooling is None:
            return self.model
        return self._mixed.get((options.layers, options.pooling), lambda: self._with_mix(options))

    def job(self, texts: Texts, options: Options, *, max_length: int | None = None) -> Job:
        """Tokenise; a text beyond the limit is refused unless it may be truncated."""
        model = self.model_for(options)
        if options.dimensions is not None:
            _check_dimensions(options.dimensions, self.vector_width(model, options))
        before = _for("prompt_name", lambda: model.prompt(options.prompt_name))
        if _is_tokens(texts):
            return Job(model, self._token_passes(model, texts, before, options))  # type: ignore[arg-type]
        sentences = check_sentences([before + str(text) for text in texts] if before else texts)  # type: ignore[arg-type]
        passes = tuple(
            TextPass(prompt, self._tokens(prompt, sentences, options, max_length), needs)
            for prompt, needs in _needs(model.mix).items()
        )
        return Job(model, passes)

    def vectors(self, embeddings: Array, options: Options) -> Array:
        """The embeddings of a job as a request wants them: (texts, vectors of a text, width)."""
        count = self.encoder.depth + 1 if options.every_layer else 1
        vectors = embeddings.reshape(len(embeddings), count, -1)[:, :, : options.dimensions]
        if self._normalizes(options):
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return np.ascontiguousarray(vectors)

    def _normalizes(self, options: Options) -> bool:
        """Whether vectors get length 1: where a request says so, or where they lose it by fewer dimensions."""
        if options.normalize is not None:
            return options.normalize
        return options.dimensions is not None and self.model_for(options).normalize

    def vector_width(self, model: LayerModel, options: Options) -> int:
        """The length of one vector."""
        return self.encoder.width if options.every_layer else model.width

    def _with_mix(self, options: Options) -> LayerModel:
        param = "layers" if options.layers is not None else "pooling"
        model = _for(param, lambda: self.model.with_mix(self._mix(options)))
        if model.mix.is_prompted and self.encoder.precision == "int8":
            raise ApiError(422, "prompts are read in float; this server runs int8", param=param)
        return model

    def _mix(self, options: Options) -> LayerMix:
        pooling = options.pooling
        if pooling is not None:
            parse_pooling(pooling)
        if options.every_layer:
            layers = tuple(range(self.encoder.depth + 1))
            return LayerConcat(layers, pooling=pooling or self.model.mix.pooling)
        if options.layers is not None:
            return parse_mix(options.layers, pooling=pooling or "mean")
        own = self.model.mix
        if isinstance(own, LayerJoin | LayerViews | LayerWk) or len(own.poolings) > 1:
            raise MixError(f"the mix of {self.name} is {own}, which has poolings of its own; give layers too")
        return parse_mix(own.expression, pooling=str(pooling))

    def _tokens(self, prompt: Prompt, texts: list[str], options: Options, max_length: int | None) -> Tokens:
        tokenizer = self._tokenizer(prompt, max_length)
        tokens = tokenizer(texts)
        if tokens.truncated and not options.truncate:
            raise self._too_long(tokenizer, texts)
        return tokens

    def _tokenizer(self, prompt: Prompt, max_length: int | None) -> SentenceTokenizer | PromptTokenizer:
        most = self.encoder.max_length
        if prompt.is_plain:
            length = min(max_length or most, most)
            if length not in self._tasks:
                self._tasks[length] = SentenceTokenizer(self.encoder.tokenizer, max_length=length)
            return self._tasks[length]
        return self._prompted.get(
            prompt, lambda: PromptTokenizer(self.encoder.tokenizer, prompt, max_length=most, model=self.name)
        )

    def _too_long(self, tokenizer: SentenceTokenizer | PromptTokenizer, texts: list[str]) -> ApiError:
        number = next(row for row, text in enumerate(texts) if tokenizer([text]).truncated)
        counting = SentenceTokenizer(self.encoder.tokenizer, max_length=self._max_counted)
        count = len(counting([texts[number]]).numbers)
        within = "" if isinstance(tokenizer, SentenceTokenizer) else " with its prompt"
        least = "at least " if count == self._max_counted else ""
        return ApiError(
            422,
            f"input {number} has {least}{count} tokens and {self.name} takes at most {tokenizer.max_length}{within};"
            f' shorten or split it, or send "truncate": true',
            param="input",
            code="context_length_exceeded",
        )

    def _token_passes(
        self, model: LayerModel, ids: Sequence[Sequence[int]], before: str, options: Options
    ) -> tuple[TextPass, ...]:
        if before or model.mix.is_prompted:
            raise ApiError(422, "token numbers cannot be put into a prompt; send texts", param="input")
        most, vocabulary = self.encoder.max_length, int(self.encoder.model.config.vocab_size)  # type: ignore[union-attr, arg-type]
        for number, row in enumerate(ids):
            if not all(0 <= token < vocabulary for token in row):
                raise ApiError(
                    422,
                    f"input {number} has token numbers beyond 0 to {vocabulary - 1}; they are of the tokenizer of "
                    f"{self.name}, special tokens included; send texts if in doubt",
                    param="input",
                )
            if len(row) > most and not options.truncate:
                raise ApiError(
                    422,
                    f"input {number} has {len(row)} tokens and {self.name} takes at most {most}; shorten or split it, "
                    f'or send "truncate": true',
                    param="input",
                    code="context_length_exceeded",
                )
        tokens = Tokens.of(row[:most] for row in ids)
        return (TextPass(PLAIN, tokens, model.mix.needs),)


class _Recent(Generic[K, V]):
    """The values that were asked for last, made where they are missing; strangers cannot fill the memory with them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
                if len(self._values) > self._most:
                    self._values.popitem(last=False)
            self._values.move_to_end(key)
            return self._values[key]


def _needs(mix: LayerMix) -> dict[Prompt, dict[str, tuple[int, ...]]]:
    """The layers of each token pooling, by prompt."""
    needs = mix.needs
    return {prompt: {name: needs[name] for name in names} for prompt, names in by_prompt(mix.poolings).items()}


def _is_tokens(texts: Texts) -> bool:
    return not isinstance(texts[0], str)


def _for(param: str, make: Callable[[], V]) -> V:
    """What `make` gives; its errors are of a field of the request."""
    try:
        return make()
    except LayerwiseError as error:
        raise ApiError(422, str(error), param=param) from error


def _check_dimensions(dimensions: int, width: int) -> None:
    if dimensions > width:
        message = f"dimensions {dimensions} is not possible: embeddings have {width} numbers; ask for 1 to {width}"
        raise ApiError(422, message, param="dimensions")


def texts_of(value: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]) -> Texts:
    """OpenAI's `input`, one or several texts or lists of tokens, as a list; an empty text is refused."""
    is_one = isinstance(value, str) or isinstance(value[0], int)
    texts = cast(Texts, [value] if is_one else value)
    for number, text in enumerate(texts):
        if not (text.strip() if isinstance(text, str) else text):
            raise ApiError(422, f"input {number} is empty; leave it out", param="input")
    return texts
