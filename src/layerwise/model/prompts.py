"""Prompts: texts put before a sentence, by name, as sentence-transformers has them."""

from collections.abc import Mapping
from typing import Any

from layerwise.errors import InputError

_NO_PROMPTS = {"query": "", "document": ""}  # as in sentence-transformers, both names are always there


def all_prompts(prompts: Mapping[str, str] | None) -> dict[str, str]:
    """The given prompts, and the two names that every model has."""
    return _NO_PROMPTS | dict(prompts or {})


def prompt_text(prompts: Mapping[str, str], name: str | None, prompt: str | None) -> str:
    """The text to put before a sentence: a prompt itself, or a named one; nothing where neither is given."""
    if prompt is not None:
        return prompt
    if name is None:
        return ""
    if name not in prompts:
        raise InputError(f"Unknown prompt {name!r}. Known: {', '.join(sorted(prompts))}")
    return prompts[name]


def with_prompt(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of `encode` with the prompt of this name, unless they have one."""
    given = options.get("prompt") is not None or options.get("prompt_name") is not None
    return options if given else options | {"prompt_name": name}
