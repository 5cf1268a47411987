"""Prompt templates with a placeholder for the text, and the notation of a pooling within a prompt.

A prompt is a text with `{text}` in it, once or twice. It may have a `{mask}` (or `[MASK]`), the model's mask token, and
an `{answer}`: the text before it is the user's message in the model's chat template, the text after it starts the
answer.

    This sentence : "{text}" means in one word:"        pooled by its last token (PromptEOL)
    This sentence : "{text}" means {mask}.              pooled by its mask token (PromptBERT)
    {text} {text}                                       pooled over the second text (echo)

A pooling in a prompt is written `last in eol`, by the name of a prompt that ships with the library, or with the prompt
itself as a JSON string: `mean in "Topic: {text}" over text`. Without a prompt it is just `mean`.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from layerwise.encoder.pooling import MASK, POOLINGS
from layerwise.errors import InputError
from layerwise.registry import check_known, did_you_mean

TEXT, MASKED, ANSWER = "{text}", "{mask}", "{answer}"
OVER = ("all", "text", "second")  # the pooled tokens: all, those of the text, those of its second occurrence
_VIEW = re.compile(r'([\w-]+)(?:\s+in\s+(?:([\w-]+)|("(?:[^"\\]|\\.)*")(?:\s+over\s+(\w+))?))?')
_NAME = re.compile(r"[a-z][\w-]*")
_HELP = """a pooling is such as 'mean', 'last in eol' or 'mean in "Topic: {text}"'"""


@dataclass(frozen=True)
class Prompt:
    """A template with a placeholder for the sentence, and which of its tokens are pooled.

    >>> Prompt('This sentence : "{text}" means {mask}.').pooling
    'mask'
    """

    template: str
    over: str = ""

    def __post_init__(self) -> None:
        template = self.template.replace("[MASK]", MASKED)
        object.__setattr__(self, "template", template)
        texts, masks = template.count(TEXT), template.count(MASKED)
        if not 1 <= texts <= 2:
            raise InputError(f"The prompt {template!r} has {texts} places for the text; write {TEXT} once or twice")
        if masks > 1:
            raise InputError(f"The prompt {template!r} has {masks} masks; write {MASKED} once at most")
        if template.count(ANSWER) > 1:
            raise InputError(f"The prompt {template!r} has several answers; write {ANSWER} once at most")
        object.__setattr__(self, "over", self.over or ("second" if texts == 2 else "all"))
        check_known(self.over, OVER, "span of a prompt")
        if self.over == "second" and texts == 1:
            raise InputError(f"The prompt {template!r} has its text once, so there is no second to pool")

    @property
    def is_plain(self) -> bool:
        """Whether the prompt is just the text."""
        return self == PLAIN

    @property
    def has_mask(self) -> bool:
        """Whether the prompt has a mask token."""
        return MASKED in self.template

    @property
    def is_chat(self) -> bool:
        """Whether the prompt needs the model's chat template."""
        return ANSWER in self.template

    @property
    def pooling(self) -> str:
        """The default token pooling: the mask token if any, the mean over a text span, otherwise the last token."""
        if self.has_mask:
            return MASK
        return "last" if self.over == "all" and not self.is_plain else "mean"

    @property
    def label(self) -> str:
        """The prompt's name in the library, otherwise the template as JSON."""
        return _names().get(self) or self.full

    @property
    def full(self) -> str:
        """The template as JSON, even if the prompt has a name."""
        usual = Prompt(self.template).over
        return json.dumps(self.template, ensure_ascii=False) + (f" over {self.over}" if self.over != usual else "")

    def __str__(self) -> str:
        return self.label


PLAIN = Prompt(TEXT)


@dataclass(frozen=True)
class Pooled:
    """How a layer's token states become one vector: the prompt around the sentence, and a token pooling."""

    pooling: str
    prompt: Prompt = PLAIN

    def __post_init__(self) -> None:
        POOLINGS[self.pooling]  # raises for an unknown pooling
        if self.pooling == MASK and not self.prompt.has_mask:
            raise InputError(f"The pooling 'mask' needs a prompt with {MASKED}, which {self.prompt.full} has not")

    @property
    def full(self) -> str:
        """The notation with the prompt's template instead of its name."""
        return self.pooling if self.prompt.is_plain else f"{self.pooling} in {self.prompt.full}"

    def __str__(self) -> str:
        return self.pooling if self.prompt.is_plain else f"{self.pooling} in {self.prompt.label}"


@lru_cache(maxsize=4096)
def parse_pooling(text: str) -> Pooled:
    """Parse a pooling with or without a prompt."""
    match = _VIEW.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no token pooling; {_HELP}")
    pooling, name, template, over = match.groups()
    if template is not None:
        return Pooled(pooling, Prompt(_unquoted(template), over or ""))
    return Pooled(pooling, PLAIN if name is None else named_prompt(name))


def by_prompt(poolings: Iterable[str]) -> dict[Prompt, list[str]]:
    """Group poolings by prompt; each group needs one pass."""
    groups: dict[Prompt, list[str]] = {}
    for text in poolings:
        groups.setdefault(parse_pooling(text).prompt, []).append(text)
    return groups


def named_prompt(name: str) -> Prompt:
    """Return a prompt of the library by name."""
    library = prompt_library()
    if name not in library:
        raise InputError(
            f"Unknown prompt {name!r}.{did_you_mean(name, library)} Known: {', '.join(library)}; or write the prompt "
            f"itself as a JSON text"
        )
    return library[name]


@cache
def prompt_library() -> Mapping[str, Prompt]:
    """Return the prompts of the package, by name."""
    text = files("layerwise.encoder").joinpath("prompts.toml").read_text(encoding="utf-8")
    return {name: prompt for name, prompt in _read(text, "prompts.toml").items() if not prompt.is_plain}


def prompts_for(tokenizer: Any) -> list[Prompt]:
    """Return the library's prompts that suit a tokenizer: mask prompts for masked models, answers for chat models."""
    masked, chat = tokenizer.mask_token is not None, bool(getattr(tokenizer, "chat_template", None))
    return [p for p in prompt_library().values() if p.has_mask == masked and (chat or not p.is_chat)]


def read_prompts(path: Path) -> dict[str, Prompt]:
    """Read prompts from a TOML file of [[prompt]] tables with a template, or a text file with one prompt a line."""
    if path.suffix not in (".toml", ".txt"):
        raise InputError(f"{path}: prompts come from a file *.toml or *.txt")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read: {reason}; give a TOML or text file of prompts") from error
    if path.suffix == ".toml":
        return _read(text, str(path))
    prompts = {}
    for row, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            prompts[f"line {row}"] = _prompt({"template": line}, f"{path}:{row}")
    return _not_empty(prompts, str(path))


def check_prompt(prompt: Prompt, tokenizer: Any, model: str) -> None:
    """Raise if a prompt needs a mask token or chat template that the tokenizer does not have."""
    if prompt.has_mask and tokenizer.mask_token is None:
        raise InputError(f"{model}: has no mask token, which the prompt {prompt.full} needs; take another prompt")
    if prompt.is_chat and not getattr(tokenizer, "chat_template", None):
        raise InputError(f"{model}: has no chat template, which the prompt {prompt.full} needs; take another prompt")


def render_prompt(prompt: Prompt, tokenizer: Any) -> str:
    """Render the prompt for a model: apply its chat template and insert its mask token."""
    template = prompt.template
    if prompt.is_chat:
        message, answer = template.split(ANSWER)
        turns = [{"role": "user", "content": message}]
        template = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) + answer
    return template.replace(MASKED, tokenizer.mask_token) if prompt.has_mask else template


def _read(text: str, path: str) -> dict[str, Prompt]:
    try:
        tables = tomllib.loads(text).get("prompt", [])
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is no TOML: {error}") from error
    prompts: dict[str, Prompt] = {}
    for number, table in enumerate(tables if isinstance(tables, Sequence) else [tables], start=1):
        where = f"{path}: prompt {number}"
        if not isinstance(table, Mapping) or not set(table) <= {"name", "template", "over"}:
            raise InputError(f"{where}: expected the keys template and, if you like, name and over")
        name = str(table.get("name", f"prompt-{number}"))
        if name in prompts or not _NAME.fullmatch(name):
            raise InputError(f"{where}: the name {name!r} comes twice or has other signs than letters, digits and -")
        prompts[name] = _prompt(table, where)
    return _not_empty(prompts, path)


def _prompt(table: Mapping[str, Any], where: str) -> Prompt:
    template = table.get("template")
    if not isinstance(template, str):
        raise InputError(f"{where}: no template; give a text with {TEXT} in it")
    try:
        return Prompt(template, str(table.get("over", "")))
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _not_empty(prompts: dict[str, Prompt], path: str) -> dict[str, Prompt]:
    if not prompts:
        raise InputError(f"{path}: holds no prompts; give tables [[prompt]] with a template, or one prompt a line")
    return prompts


def _unquoted(template: str) -> str:
    try:
        return str(json.loads(template))
    except json.JSONDecodeError as error:
        raise InputError(f"{template} is no JSON text: {error.msg}; {_HELP}") from error


@cache
def _names() -> Mapping[Prompt, str]:
    return {prompt: name for name, prompt in prompt_library().items()}
