"""Texts in prompts: which prompt a pooler has, the tokens of texts in it, two prompts as the two views of a text."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from layerwise.encoder import (
    LayerEncoder,
    Pooled,
    Prompt,
    PromptTokenizer,
    SentenceTokenizer,
    Tokens,
    named_prompt,
    parse_pooling,
)
from layerwise.errors import InputError
from layerwise.mixes import Mix


def prompt_of(pooler: Mix) -> Prompt:
    """The prompt that a pooler's texts stand in; the student reads one pass, so several are refused."""
    prompts = list(dict.fromkeys(parse_pooling(name).prompt for name in pooler.poolings))
    if len(prompts) > 1:
        names = ", ".join("the text alone" if prompt.is_plain else str(prompt) for prompt in prompts)
        raise InputError(f"[model] pooler {pooler} has several prompts ({names}), but one pass is trained; choose one")
    return prompts[0]


def second_prompt_of(text: str, pooler: Mix) -> Prompt:
    """The prompt of the second view, by its name or as a template; one that the pooler cannot pool is refused."""
    second, first = Prompt(text) if "{" in text else named_prompt(text), prompt_of(pooler)
    if first.is_plain:
        raise InputError(
            f"[model] second_prompt needs a pooler in a prompt, such as 'last @ mask in means', not {pooler}"
        )
    if second == first:
        raise InputError(f"[model] second_prompt {second} is the pooler's own; give another one, or leave it out")
    for name in pooler.poolings:
        Pooled(parse_pooling(name).pooling, second)  # a mask that it has not
    return second


def training_tokenizer(
    encoder: LayerEncoder, prompt: Prompt, *, max_length: int
) -> SentenceTokenizer | PromptTokenizer:
    """Of texts within a prompt; `max_length` is of the text alone, as far as the encoder has room."""
    if prompt.is_plain:
        return SentenceTokenizer(encoder.tokenizer, max_length=max_length)
    return prompt_tokenizer(encoder, prompt, max_length=max_length)


def prompt_tokenizer(encoder: LayerEncoder, prompt: Prompt, *, max_length: int) -> PromptTokenizer:
    """The same where there is a prompt."""
    (empty,) = encoder.token_counts([""], replace(prompt, over="all"))  # without a text there is none to pool over
    of_text = max(1, max_length - encoder.tokenizer.num_special_tokens_to_add())
    longest = min(encoder.max_length, empty + prompt.template.count("{text}") * of_text)
    return PromptTokenizer(encoder.tokenizer, prompt, max_length=longest, model=encoder.name)


def which_prompt(places: Tensor) -> Tensor | None:
    """Which of two prompts each text stands in, by the places of its tokens, (n, 3 or 4); None where there is one."""
    return places[:, 3] if places.shape[1] > 3 else None


class TwoPrompts:
    """A tokenizer of twice as many texts: the first half stands in one prompt, the second half in another.

    The places of its tokens have a fourth number: 0 for the first prompt, 1 for the second.
    """

    def __init__(self, first: PromptTokenizer, second: PromptTokenizer) -> None:
        self.tokenizers = (first, second)

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Tokenise both halves."""
        half = len(texts) // 2
        halves = [one(part) for one, part in zip(self.tokenizers, (texts[:half], texts[half:]), strict=True)]
        places = [
            np.column_stack([tokens.places, np.full(len(tokens), number)])
            for number, tokens in enumerate(halves)
            if tokens.places is not None
        ]
        return replace(Tokens.joined(halves), places=np.concatenate(places))
