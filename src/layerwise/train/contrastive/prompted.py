"""Training texts in prompts: a pooler's prompt, its tokenizer, and two prompts as the two views of a text."""

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
    """Return the pooler's prompt; raise for several, as the student runs one pass."""
    prompts = list(dict.fromkeys(parse_pooling(name).prompt for name in pooler.poolings))
    if len(prompts) > 1:
        names = ", ".join("the text alone" if prompt.is_plain else str(prompt) for prompt in prompts)
        raise InputError(
            f"[model] pooler {pooler} has several prompts ({names}), but one pass is trained; choose one, or distil "
            f"the saved model into one prompt (objective distil)"
        )
    return prompts[0]


def second_prompt_of(text: str, pooler: Mix) -> Prompt:
    """Return the prompt of the second view, by name or template; raise if the pooler cannot pool it."""
    second, first = Prompt(text) if "{" in text else named_prompt(text), prompt_of(pooler)
    if first.is_plain:
        raise InputError(
            f"[model] second_prompt needs a pooler in a prompt, such as 'last @ mask in means', not {pooler}"
        )
    if second == first:
        raise InputError(f"[model] second_prompt {second} is the pooler's own; give another one, or leave it out")
    for name in pooler.poolings:
        Pooled(parse_pooling(name).pooling, second)  # raises for a missing mask
    return second


def training_tokenizer(
    encoder: LayerEncoder, prompt: Prompt, *, max_length: int
) -> SentenceTokenizer | PromptTokenizer:
    """Return the tokenizer of texts in a prompt; `max_length` excludes the prompt, within the encoder's limit."""
    if prompt.is_plain:
        return SentenceTokenizer(encoder.tokenizer, max_length=max_length)
    return prompt_tokenizer(encoder, prompt, max_length=max_length)


def prompt_tokenizer(encoder: LayerEncoder, prompt: Prompt, *, max_length: int) -> PromptTokenizer:
    """Like `training_tokenizer`, for a prompt that is not plain."""
    (empty,) = encoder.token_counts([""], replace(prompt, over="all"))  # an empty text has no tokens to pool
    text_length = max(1, max_length - encoder.tokenizer.num_special_tokens_to_add())
    longest = min(encoder.max_length, empty + prompt.template.count("{text}") * text_length)
    return PromptTokenizer(encoder.tokenizer, prompt, max_length=longest, model=encoder.name)


def which_prompt(places: Tensor) -> Tensor | None:
    """Return which of two prompts each text is in, from `places` (n, 3 or 4); None for a single prompt."""
    return places[:, 3] if places.shape[1] > 3 else None


class TwoPrompts:
    """Tokenises the first half of the texts in one prompt and the second half in another.

    `places` has a fourth number: 0 for the first prompt, 1 for the second.
    """

    def __init__(self, first: PromptTokenizer, second: PromptTokenizer) -> None:
        self.tokenizers = (first, second)

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Tokenise both halves."""
        half = len(texts) // 2
        parts = (texts[:half], texts[half:])
        halves = [tokenizer(part) for tokenizer, part in zip(self.tokenizers, parts, strict=True)]
        places = [
            np.column_stack([tokens.places, np.full(len(tokens), number)])
            for number, tokens in enumerate(halves)
            if tokens.places is not None
        ]
        return replace(Tokens.joined(halves), places=np.concatenate(places))
