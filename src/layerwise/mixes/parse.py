"""Parse the text of a mix.

    last | last-4 | first-last | 0+last | all            names
    0,1,12 | 1-3,12 | -4..-2                             the mean of a set; negative numbers count from the last
    1:0.25,12:0.75                                       weights
    concat(1,12)                                         a concatenation
    last @ cls | last @ mean                             a concatenation of mixes, each with a pooling
    views(5,9 @ mean; 12 @ cls; unit)                    the mean of views by several poolings, normalised
    views(5 @ mean; 5,9 @ mean less 8; unit)             ... some of them without their mean and first 8 components
    views(3*9,-1*5 @ mean; unit)                         ... layer 9 with weight 3, layer 5 with weight -1
    attention(cls, mean) | attention(cls, mean, last=cls) | attention(mask in means, mean in means)
                                                         attention over all layers, which names its poolings
    wk | wk(start=4,window=2)                            SBERT-WK, which takes no pooling

followed by ` @ mean`, ` @ cls`, ` @ last` and so on for the token pooling, within a prompt ` @ last in eol` or
` @ mean in "Topic: {text}"`; without it, mean.
"""

import re
from dataclasses import replace
from typing import Any, TypeAlias

from layerwise.errors import MixError
from layerwise.mixes.attention import LayerAttention
from layerwise.mixes.concat import LayerConcat
from layerwise.mixes.join import LayerJoin
from layerwise.mixes.layer_set import NAMED, LayerSet, Span, is_backwards
from layerwise.mixes.views import SCALES, LayerViews
from layerwise.mixes.weights import LayerWeights
from layerwise.mixes.wk import LayerWk

_LAST_K = re.compile(r"last-(\d+)")
_CONCAT = re.compile(r"concat\((.*)\)")
_ATTENTION = re.compile(r"attention(?:\((.*)\))?")
_ATTENDED = re.compile(r"[a-z][\w-]*(?:\s+in\s.+)?$", re.DOTALL)
_ATTENTION_OPTION = re.compile(r"(last|scores)\s*=\s*(\w.*)", re.DOTALL)
_VIEWS = re.compile(r"views\((.*)\)", re.DOTALL)
_TIMES = re.compile(r"(?<!\d)([-+]?\d+(?:\.\d+)?)\s*\*\s*(\d+)")
_LESS = re.compile(r"less\s+(mean|\d+)")
_PART_LESS = re.compile(r"\s+less\s+(mean|\d+)$")
_WK = re.compile(r"wk(?:\((.*)\))?")
_WK_OPTION = re.compile(r"(start|window|last)\s*=\s*([-+]?\d+)")
_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)|(-?\d+)\s*\.\.\s*(-?\d+)")
_NUMBER = re.compile(r"[-+]?\d+")
_MAX_LAYERS = 10_000  # in a range among views, which are counted before the encoder's depth is known
_HELP = (
    "a mix is layers such as 'last', 'last-4', 'first-last', '0+last', 'all', '0,1,12', '1-3,12', '1:0.25,12:0.75' "
    "or 'concat(1,12)', followed by '@ mean', '@ cls', '@ last' or '@ last in eol'; several with '|' between them; "
    "'views(5,9 @ mean; 12 @ cls; unit)'; 'attention(cls, mean)'; or 'wk'"
)
_ATTENTION_HELP = "as in attention(cls, mean) or attention(cls, mean, last=cls, scores=ratio)"

_Single: TypeAlias = LayerSet | LayerWeights | LayerConcat | LayerAttention | LayerWk
LayerMix: TypeAlias = _Single | LayerJoin | LayerViews


def parse_mix(text: str, *, pooling: str = "mean") -> LayerMix:
    """Parse a mix; `pooling` is the default if the text names none."""
    if match := _VIEWS.fullmatch(text.strip()):
        return _views(match[1], text, pooling)
    parts = split_outside_quotes(text, "|")
    if len(parts) == 1:
        return _single(text, pooling)
    if not all(part.strip() for part in parts):
        raise MixError(f"{text!r}: no mix before or after a '|'; {_HELP}")
    return LayerJoin(tuple(_single(part.strip(), pooling) for part in parts))  # type: ignore[misc] # LayerJoin refuses other types


def _single(text: str, pooling: str) -> _Single:
    expression, at, named = (part.strip() for part in text.partition("@"))
    pooling = named or pooling
    if at and not named:
        raise MixError(f"{text!r}: no pooling after '@'; {_HELP}")
    if expression in NAMED:
        return LayerSet(NAMED[expression], pooling=pooling)
    if match := _LAST_K.fullmatch(expression):
        if not int(match[1]):
            raise MixError(f"{text!r}: last-k needs a k of 1 or more")
        return LayerSet(((-int(match[1]), -1),), pooling=pooling)
    if match := _CONCAT.fullmatch(expression):
        return LayerConcat(tuple(_number(part, text) for part in match[1].split(",")), pooling=pooling)
    if match := _ATTENTION.fullmatch(expression):
        if named:
            raise MixError(f"{text!r}: an attention names its poolings itself; leave '@ {named}' out")
        return _attention(match[1] or "", text)
    if match := _WK.fullmatch(expression):
        if named:
            raise MixError(f"{text!r}: wk weighs the tokens itself, so it takes no pooling; leave '@ {named}' out")
        return _wk(match[1], text)
    parts = [part.strip() for part in expression.split(",")]
    if any(":" in part for part in parts):
        return LayerWeights(tuple(_weight(part, text) for part in parts), pooling=pooling)
    return LayerSet(tuple(_span(part, text) for part in parts), pooling=pooling)


def _views(inside: str, text: str, pooling: str) -> LayerViews:
    parts = [part.strip() for part in split_outside_quotes(inside, ";")]
    options: dict[str, Any] = {}
    while parts and (option := _view_option(parts[-1])):
        options |= option
        parts.pop()
    sets, weights, less = [], [], []
    for part in parts:
        option_match = _PART_LESS.search(part)
        mix, set_weights = _weighted_set(part[: option_match.start()] if option_match else part, text, pooling)
        sets.append(mix)
        weights += set_weights
        less.append(_components(option_match[1]) if option_match else None)
    if any(count is not None for count in less):
        if "less" in options:
            raise MixError(f"{text!r}: 'less' is said both of a set and of all; write it once")
        options["less"] = tuple(less)
    return LayerViews(tuple(sets), weights=tuple(weights) if any(w != 1 for w in weights) else (), **options)


def _weighted_set(part: str, text: str, pooling: str) -> tuple[LayerSet, list[float]]:
    """A set of layers with weights: `3*26,-1*28,30 @ mean` gives layer 26 the weight 3 and layer 28 the weight -1."""
    layers, at, named = part.partition("@")
    weights = {int(layer): float(weight) for weight, layer in _TIMES.findall(layers)}
    mix = _single(_TIMES.sub(r"\2", layers) + at + named, pooling)
    if not isinstance(mix, LayerSet):
        raise MixError(f"{text!r}: {mix} is no set of layers; as in views(5,9 @ mean; 12 @ cls; unit)")
    if any(last - first > _MAX_LAYERS for first, last in mix.spans):
        raise MixError(f"{text!r}: no encoder has so many layers; as in views(5,9 @ mean; 12 @ cls; unit)")
    if not weights:
        return mix, [] if any(first < 0 for first, _ in mix.spans) else [1.0] * len(mix.layers)
    return mix, [weights.get(layer, 1.0) for layer in mix.layers]


def _view_option(part: str) -> dict[str, Any]:
    """Parse an option: `unit`, `less mean` or `less 8`; empty for a set of layers."""
    if part in SCALES:
        return {"scale": part}
    match = _LESS.fullmatch(part)
    return {} if match is None else {"less": _components(match[1])}


def _components(word: str) -> int:
    return 0 if word == "mean" else int(word)


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Split a text at separators, except for those within a prompt's quotes."""
    parts, start = [], 0
    for match in re.finditer(rf'"(?:[^"\\]|\\.)*"|{re.escape(separator)}', text):
        if match[0] == separator:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def _span(part: str, text: str) -> Span:
    if match := _RANGE.fullmatch(part):
        first, last = (int(number) for number in match.groups() if number is not None)
        if is_backwards((first, last)):
            raise MixError(f"{text!r}: the range {part} runs backwards")
        return first, last
    number = _number(part, text)
    return number, number


def _weight(part: str, text: str) -> tuple[int, float]:
    name, _, weight = part.partition(":")
    layer = _number(name, text)
    try:
        return layer, float(weight)
    except ValueError as error:
        raise MixError(f"{text!r}: {weight!r} is not a weight; {_HELP}") from error


def _number(part: str, text: str) -> int:
    part = part.strip()
    if not _NUMBER.fullmatch(part):
        raise MixError(f"{text!r}: {part!r} is not a layer; {_HELP}")
    return int(part)


def _attention(inside: str, text: str) -> LayerAttention:
    parts = [part.strip() for part in split_outside_quotes(inside, ",")]
    if len(parts) < 2 or not all(_ATTENDED.match(part) for part in parts[:2]):
        raise MixError(f"{text!r}: an attention needs two token poolings; {_ATTENTION_HELP}")
    options: dict[str, Any] = {}
    for part in parts[2:]:
        option = _ATTENTION_OPTION.fullmatch(part)
        if option is None or option[1] in options:
            raise MixError(f"{text!r}: {part!r} is no option of an attention, or comes twice; {_ATTENTION_HELP}")
        options[option[1]] = option[2]
    return LayerAttention(parts[0], parts[1], **options)


def _wk(options: str | None, text: str) -> LayerWk:
    values: dict[str, Any] = {}
    for part in options.split(",") if options and options.strip() else ():
        option = _WK_OPTION.fullmatch(part.strip())
        if option is None or option[1] in values:
            raise MixError(f"{text!r}: {part.strip()!r} is no option of wk, or comes twice; as in wk(start=4,window=2)")
        values[option[1]] = int(option[2])
    return replace(LayerWk(), **values)
