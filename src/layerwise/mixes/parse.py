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
from typing import Any

from layerwise.errors import MixError
from layerwise.mixes.attention import Attention
from layerwise.mixes.concat import Concat
from layerwise.mixes.mean import NAMED, Mean, Span
from layerwise.mixes.mix import SCALES, Mix
from layerwise.mixes.wk import SbertWk

_LAST_K = re.compile(r"last-(\d+)")
_CONCAT = re.compile(r"concat\((.*)\)")
_ATTENTION = re.compile(r"attention(?:\((.*)\))?")
_ATTENDED = re.compile(r"[a-z][\w-]*(?:\s+in\s.+)?$", re.DOTALL)
_ATTENTION_OPTION = re.compile(r"(last|scores)\s*=\s*(\w.*)", re.DOTALL)
_VIEWS = re.compile(r"views\((.*)\)", re.DOTALL)
_VIEW_OPTION = re.compile(rf"(?:{'|'.join(SCALES)})|less\s+(mean|\d+)")
_TIMES = re.compile(r"(?<![\d.e])([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*\*\s*(-?\d+)")
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
_VIEWS_HELP = "views(5,9 @ mean; 12 @ cls; unit)"
_ATTENTION_HELP = "as in attention(cls, mean) or attention(cls, mean, last=cls, scores=ratio)"


def parse_mix(text: str, *, pooling: str = "mean") -> Mix:
    """Parse a mix; `pooling` is the default if the text names none."""
    if match := _VIEWS.fullmatch(text.strip()):
        return _views(match[1], text, pooling)
    parts = split_outside_quotes(text, "|")
    if len(parts) == 1:
        return _single(text, pooling)
    if not all(part.strip() for part in parts):
        raise MixError(f"{text!r}: no mix before or after a '|'; {_HELP}")
    return Concat.joined([_single(part.strip(), pooling) for part in parts])


def _single(text: str, pooling: str) -> Mix:
    before, *after = split_outside_quotes(text, "@")
    expression, named = before.strip(), "@".join(after).strip()
    pooling = named or pooling
    if after and not named:
        raise MixError(f"{text!r}: no pooling after '@'; {_HELP}")
    if match := _CONCAT.fullmatch(expression):
        if match[1].count(",") > _MAX_LAYERS:
            raise MixError(f"no encoder has so many layers as {match[1][:20]}…; as in concat(1,12)")
        return Concat.of(*(_number(part, text) for part in match[1].split(",")), pooling=pooling)
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
        return _weighted([_weight(part, text) for part in parts], pooling)
    return Mean.of(*_layers(expression, text), pooling=pooling)


def _layers(expression: str, text: str) -> tuple[tuple[int, int], ...]:
    """Parse a set of layers to (first, last) pairs."""
    if expression in NAMED:
        return NAMED[expression]
    if match := _LAST_K.fullmatch(expression):
        if not int(match[1]):
            raise MixError(f"{text!r}: last-k needs a k of 1 or more")
        return ((-int(match[1]), -1),)
    return tuple(_range(part.strip(), text) for part in expression.split(","))


def _weighted(weights: list[tuple[int, float]], pooling: str) -> Mean:
    numbers = [layer for layer, _ in weights]
    if len(set(numbers)) < len(numbers):
        raise MixError(f"A layer has two weights: {numbers}")
    return Mean.weighted(dict(weights), pooling=pooling)


def _views(inside: str, text: str, pooling: str) -> Mean:
    parts = [part.strip() for part in split_outside_quotes(inside, ";")]
    scale: Any = "none"
    less_all = None
    while parts and (option := _VIEW_OPTION.fullmatch(parts[-1])):
        scale, less_all = (option[0], less_all) if option[1] is None else (scale, option[1])
        parts.pop()
    if not parts:
        raise MixError(f"{text!r}: a mean of views needs at least one set of layers; as in {_VIEWS_HELP}")
    spans, weights = list[Span](), list[float]()
    is_weighted = any("*" in part.partition("@")[0] for part in parts)
    for part in parts:
        less = _PART_LESS.search(part)
        if less and less_all:
            raise MixError(f"{text!r}: 'less' is said both of a set and of all; write it once")
        layers, at, named = (part[: less.start()] if less else part).partition("@")
        if ":" in layers or "(" in layers:
            raise MixError(f"{text!r}: {layers.strip()} is no set of layers; as in {_VIEWS_HELP}")
        pairs = _layers(_TIMES.sub(r"\2", layers).strip(), text)
        if any(last - first > _MAX_LAYERS for first, last in pairs):
            raise MixError(f"{text!r}: no encoder has so many layers; as in {_VIEWS_HELP}")
        word = less[1] if less else less_all
        remove = None if word is None else 0 if word == "mean" else int(word)
        mean = Mean.of(*pairs, pooling=named.strip() if at else pooling, remove=remove)
        if {(span.pooling, span.remove) for span in spans} & {(mean.pooling, remove)}:
            raise MixError(f"A mean of views has a token pooling twice: {text}; write its layers as one set")
        spans += mean.spans
        if is_weighted:
            by_layer = {int(layer): float(weight) for weight, layer in _TIMES.findall(layers)}
            weights += [by_layer.get(view.layer, 1.0) for span in mean.spans for view in span.views]
    return Mean(tuple(spans), tuple(weights), scale)


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Split a text at separators, except for those within a prompt's quotes."""
    parts, start = [], 0
    for match in re.finditer(rf'"(?:[^"\\]|\\.)*"|{re.escape(separator)}', text):
        if match[0] == separator:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def _range(part: str, text: str) -> tuple[int, int]:
    if match := _RANGE.fullmatch(part):
        first, last = (int(number) for number in match.groups() if number is not None)
        if first > last and (first < 0) == (last < 0):
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


def _attention(inside: str, text: str) -> Attention:
    parts = [part.strip() for part in split_outside_quotes(inside, ",")]
    if len(parts) < 2 or not all(_ATTENDED.match(part) for part in parts[:2]):
        raise MixError(f"{text!r}: an attention needs two token poolings; {_ATTENTION_HELP}")
    options: dict[str, Any] = {}
    for part in parts[2:]:
        option = _ATTENTION_OPTION.fullmatch(part)
        if option is None or option[1] in options:
            raise MixError(f"{text!r}: {part!r} is no option of an attention, or comes twice; {_ATTENTION_HELP}")
        options[option[1]] = option[2]
    return Attention(parts[0], parts[1], **options)


def _wk(options: str | None, text: str) -> SbertWk:
    values: dict[str, Any] = {}
    for part in options.split(",") if options and options.strip() else ():
        option = _WK_OPTION.fullmatch(part.strip())
        if option is None or option[1] in values:
            raise MixError(f"{text!r}: {part.strip()!r} is no option of wk, or comes twice; as in wk(start=4,window=2)")
        values[option[1]] = int(option[2])
    return SbertWk(**values)
