"""The cosine of two sentences as a sum over pairs of their (layer, token) vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.encoder import PLAIN, Prompt, by_prompt
from layerwise.errors import InputError, ModelError
from layerwise.explain.linear import Exact, Place, apply_heads, check_linear, places_of
from layerwise.explain.token_states import TokenStates, read_token_states
from layerwise.explain.words import words_of
from layerwise.model import LayerModel

BIAS = "(bias)"
TOLERANCE = 1e-6  # of the residual
MOST_VIEWS = 8  # in a table of views by views; with more, only the largest terms are shown
CONTEXTUAL = (
    "Tokens are contextual: a token's state has read its whole sentence, so a term is that of a word in its place, "
    "not of the word alone."
)
_BATCH_SIZE = 16  # pairs that share a forward pass
_TINY = 1e-12  # the minimum length that a view is divided by, as in Mean


@dataclass(frozen=True, eq=False)
class ExplainedText:
    """A sentence's tokens and words, and the vectors whose sum is its embedding of length 1.

    Attributes:
        text: The sentence.
        tokens: The tokens as in the vocabulary, concatenated over prompts.
        words: The words; special tokens are single words.
        prompts: The prompt of each word, "" for none.
        word_of_token: The index of each token's word: (tokens,)
        vectors: The term of each token by each view: (views, tokens, width)
    """

    text: str
    tokens: tuple[str, ...]
    words: tuple[str, ...]
    prompts: tuple[str, ...]
    word_of_token: NDArray[np.intp]
    vectors: Exact

    @property
    def labels(self) -> tuple[str, ...]:
        """The words, with their prompts if there are several."""
        if len(set(self.prompts)) == 1:
            return self.words
        named = zip(self.words, self.prompts, strict=True)
        return tuple(f"{word} (in {prompt})" if prompt else word for word, prompt in named)

    @property
    def token_vectors(self) -> Exact:
        """Each token's term in the embedding, summed over views: (tokens, width)"""
        total: Exact = self.vectors.sum(0)
        return total

    @property
    def view_vectors(self) -> Exact:
        """Each view's term in the embedding, summed over tokens: (views, width)"""
        total: Exact = self.vectors.sum(1)
        return total

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the vectors."""
        names = ("text", "tokens", "words", "prompts", "word_of_token")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Explanation:
    """The decomposition of the cosine of two sentences. All contributions sum to `total`, which is the cosine.

    Attributes:
        model: The encoder's name.
        mix: The text of the mix.
        views: A name for each view, such as "6 @ mean"; heads with a bias add the view "(bias)".
        left: The first sentence.
        right: The second.
        cosine: The cosine of the embeddings of `LayerModel.encode`.
    """

    model: str
    mix: str
    views: tuple[str, ...]
    left: ExplainedText
    right: ExplainedText
    cosine: float

    @property
    def contributions(self) -> Exact:
        """All single terms: (views, views, left tokens, right tokens)"""
        terms: Exact = np.einsum("vtw,usw->vuts", self.left.vectors, self.right.vectors, optimize=True)
        return terms

    @cached_property
    def by_token(self) -> Exact:
        """The terms summed over views: (left tokens, right tokens)"""
        return self.left.token_vectors @ self.right.token_vectors.T

    @cached_property
    def by_word(self) -> Exact:
        """The terms summed over views and the tokens of words: (left words, right words)"""
        sums = np.zeros((len(self.left.words), len(self.right.words)))
        np.add.at(sums, (self.left.word_of_token[:, None], self.right.word_of_token[None]), self.by_token)
        return sums

    @cached_property
    def by_view(self) -> Exact:
        """The terms summed over tokens: (left views, right views)"""
        return self.left.view_vectors @ self.right.view_vectors.T

    @property
    def total(self) -> float:
        """The sum of all terms."""
        return float(self.by_token.sum())

    @property
    def residual(self) -> float:
        """The cosine minus the sum of the terms: 0 up to rounding errors."""
        return self.cosine - self.total

    def top_words(self, count: int) -> list[tuple[int, int]]:
        """The pairs of words (left, right) with the largest absolute terms."""
        return _largest_cells(self.by_word, count)

    def largest_by_word(self, count: int) -> list[tuple[str, str, float]]:
        """The pairs of words with the largest terms, and one row for all others, so that the rows sum to `total`."""
        return _largest_rows(self.left.labels, self.right.labels, self.by_word, count)

    def largest_by_view(self, count: int) -> list[tuple[str, str, float]]:
        """The pairs of views with the largest terms, and one row for all others, so that the rows sum to `total`."""
        return _largest_rows(self.views, self.views, self.by_view, count)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: sums by token, word and view."""
        facts = {name: getattr(self, name) for name in ("model", "mix", "views", "cosine", "total", "residual")}
        sides = {"left": self.left.as_dict(), "right": self.right.as_dict()}
        sums = {name: getattr(self, name) for name in ("by_word", "by_token", "by_view")}
        return facts | sides | sums | {"note": CONTEXTUAL}


def _largest_cells(sums: Exact, count: int) -> list[tuple[int, int]]:
    order = np.argsort(-np.abs(sums), axis=None, kind="stable")[:count]
    rows, columns = np.unravel_index(order, sums.shape)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def _largest_rows(left: Sequence[str], right: Sequence[str], sums: Exact, count: int) -> list[tuple[str, str, float]]:
    cells = _largest_cells(sums, count)
    rows = [(left[row], right[column], float(sums[row, column])) for row, column in cells]
    others = sums.size - len(rows)
    rest = float(sums.sum()) - sum(term for _, _, term in rows)
    return [*rows, (f"{others:,} other {'pairs' if others > 1 else 'pair'}", "", rest)] if others else rows


def explain_pair(model: LayerModel, left: str, right: str) -> Explanation:
    """The cosine of two sentences as a sum over their tokens and layers.

    It is exact for weighted sums of layers (sets, weights, concatenations, joins, `views(...)`), token poolings other
    than max, and linear heads. Raises for other models, and if the sum differs from the cosine by more than 1e-6.

    >>> explanation = explain_pair(LayerModel(), "A cat sat.", "A dog sat.")
    >>> explanation.left.words, explanation.contributions.shape
    (('[CLS]', 'A', 'cat', 'sat', '.', '[SEP]'), (1, 1, 6, 6))
    """
    (explanation,) = explain_pairs(model, [(left, right)])
    return explanation


def explain_pairs(model: LayerModel, pairs: Sequence[tuple[str, str]]) -> Iterator[Explanation]:
    """`explain_pair` of many pairs, in batches to bound memory."""
    check_linear(model)
    for start in range(0, len(pairs), _BATCH_SIZE):
        yield from _explain_batch(model, pairs[start : start + _BATCH_SIZE])


def _explain_batch(model: LayerModel, pairs: Sequence[tuple[str, str]]) -> Iterator[Explanation]:
    views = list(dict.fromkeys((place.pooling, place.layer) for place in places_of(model.mix, model.encoder.width)))
    names = [f"{layer} @ {pooling}" for pooling, layer in views]
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    embeddings = dict(zip(texts, model.encode(texts).astype(np.float64), strict=True))
    passes = dict(zip(texts, _read_passes(model, texts), strict=True))
    for pair in pairs:
        left, right = (_explain_text(model, text, views, passes[text]) for text in pair)
        all_names = (*names, BIAS) if len(left.vectors) > len(names) else tuple(names)
        cosine = _cosine(*(embeddings[text] for text in pair))
        result = Explanation(model.encoder.name, str(model.mix), all_names, left, right, cosine)
        if not abs(result.residual) <= TOLERANCE:
            raise ModelError(
                f"The terms sum to {result.total:.8f}, but the cosine is {cosine:.8f}: this model gives other numbers "
                f"in each pass, or rounds too coarsely to be explained; use dtype float32"
            )
        yield result


def _read_passes(model: LayerModel, texts: Sequence[str]) -> list[dict[Prompt, TokenStates]]:
    """The token states of each text, by prompt."""
    prefix = model.prompt()
    prompted = [prefix + text for text in texts]
    passes: dict[Prompt, list[TokenStates]] = {}
    for prompt, poolings in by_prompt(model.mix.poolings).items():
        layers = sorted({layer for name in poolings for layer in model.mix.needs[name]})
        passes[prompt] = read_token_states(model.encoder, prompted, prompt=prompt, layers=layers, poolings=poolings)
    return [{prompt: states[row] for prompt, states in passes.items()} for row in range(len(texts))]


def _explain_text(
    model: LayerModel, text: str, views: list[tuple[str, int]], passes: dict[Prompt, TokenStates]
) -> ExplainedText:
    tokens, words, prompts, word_of_token = _words(model, model.prompt() + text, passes)
    start, starts = 0, dict[str, int]()  # the index of the first token of each pooling
    for states in passes.values():
        starts |= dict.fromkeys(states.weights, start)
        start += len(states.ids)
    vectors = np.zeros((len(views), len(tokens), model.mix.width(model.encoder.width)))
    for place, terms in _terms(model, passes):
        rows = slice(starts[place.pooling], starts[place.pooling] + len(terms))
        columns = slice(place.start, place.start + terms.shape[1])
        vectors[views.index((place.pooling, place.layer)), rows, columns] += terms
    vectors, bias = apply_heads(model, vectors)
    if bias.any():
        vectors = np.pad(vectors, ((0, 1), (0, 1), (0, 0)))
        vectors[-1, -1] = bias
        word_of_token = np.append(word_of_token, len(words))
        tokens, words, prompts = [*tokens, BIAS], [*words, BIAS], [*prompts, ""]
    length = float(np.linalg.norm(vectors.sum((0, 1))))
    if not length:
        raise InputError(f"The embedding of {text[:40]!r} is 0, which has no cosine")
    return ExplainedText(text, tuple(tokens), tuple(words), tuple(prompts), word_of_token, vectors / length)


def _words(
    model: LayerModel, prompted: str, passes: dict[Prompt, TokenStates]
) -> tuple[list[str], list[str], list[str], NDArray[np.intp]]:
    """The tokens, words, prompts of the words, and word indices of the tokens, concatenated over prompts."""
    tokens: list[str] = []
    words: list[str] = []
    prompts: list[str] = []
    numbers: list[NDArray[np.intp]] = []
    for prompt, states in passes.items():
        prompt_tokens = [str(token) for token in model.tokenizer.convert_ids_to_tokens(list(states.ids))]
        prompt_words, word_of_token = words_of(prompt_tokens, *(model.encoder.spans(prompted, prompt) or ()))
        numbers.append(word_of_token + len(words))
        tokens += prompt_tokens
        words += prompt_words
        prompts += ["" if prompt == PLAIN else prompt.label] * len(prompt_words)
    return tokens, words, prompts, np.concatenate(numbers)


def _terms(model: LayerModel, passes: dict[Prompt, TokenStates]) -> list[tuple[Place, Exact]]:
    """The term of each token in the embedding, by view: (tokens, width) each"""
    mix = model.mix
    by_pooling = {pooling: states for states in passes.values() for pooling in states.weights}
    terms = []
    for number, place in enumerate(places_of(mix, model.encoder.width)):
        token_states = by_pooling[place.pooling]
        states = token_states.states[place.layer]
        if mix.fitted is not None and mix.centres is not None:
            centres = mix.centres.pick([number])
            states = centres.taken_from(torch.from_numpy(states).unsqueeze(1))[:, 0].numpy()
        weighted = token_states.weights[place.pooling][:, None] * states
        if mix.scale == "unit":
            weighted = weighted / max(float(np.linalg.norm(weighted.sum(0))), _TINY)
        terms.append((place, place.share * weighted))
    return terms


def _cosine(left: Exact, right: Exact) -> float:
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))
