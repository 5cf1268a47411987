"""From the text of a mix to the mix.

    last | last-4 | first-last | 0+last | all            names
    0,1,12 | 1-3,12 | -4..-2                             a set, averaged; negative numbers count from the last
    1:0.25,12:0.75                                       weights
    concat(1,12)                                         side by side
    last @ cls | last @ mean                             mixes side by side, each with a pooling
    views(5,9 @ mean; 12 @ cls; unit)                    the mean of views by several poolings, each of length 1
    attention(cls, mean) | attention(cls, mean, last=cls)
                                                         attention over all layers, which names its poolings
    wk | wk(start=4,window=2)                            SBERT-WK, which takes no pooling

followed by ` @ mean`, ` @ cls` or ` @ max` for the token pooling; without it, mean.
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
_ATTENTION_OPTION = re.compile(r"(last|scores)\s*=\s*(\w+)")
_VIEWS = re.compile(r"views\((.*)\)")
_WK = re.compile(r"wk(?:\((.*)\))?")
_WK_OPTION = re.compile(r"(start|window|last)\s*=\s*([-+]?\d+)")
_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)|(-?\d+)\s*\.\.\s*(-?\d+)")
_NUMBER = re.compile(r"[-+]?\d+")
_HELP = (
    "a mix is layers such as 'last', 'last-4', 'first-last', '0+last', 'all', '0,1,12', '1-3,12', '1:0.25,12:0.75' "
    "or 'concat(1,12)', followed by '@ mean', '@ cls' or '@ max'; several with '|' between them; "
    "'views(5,9 @ mean; 12 @ cls; unit)'; 'attention(cls, mean)'; or 'wk'"
)
_ATTENTION_HELP = "as in attention(cls, mean) or attention(cls, mean, last=cls, scores=ratio)"

_Single: TypeAlias = LayerSet | LayerWeights | LayerConcat | LayerAttention | LayerWk
LayerMix: TypeAlias = _Single | LayerJoin | LayerViews


def parse_mix(text: str, *, pooling: str = "mean") -> LayerMix:
    """Read a mix; `pooling` is taken where the text names none."""
    if match := _VIEWS.fullmatch(text.strip()):
        return _views(match[1], text, pooling)
    if "|" not in text:
        return _single(text, pooling)
    parts = text.split("|")
    if not all(part.strip() for part in parts):
        raise MixError(f"{text!r}: no mix before or after a '|'; {_HELP}")
    return LayerJoin(tuple(_single(part.strip(), pooling) for part in parts))  # type: ignore[misc] # refuses others


def _single(text: str, pooling: str) -> _Single:
    expression, _, named = (part.strip() for part in text.partition("@"))
    pooling = named or pooling
    if "@" in text and not named:
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
    *parts, last = [part.strip() for part in inside.split(";")]
    scale = last if last in SCALES else "none"
    sets = [_single(part, pooling) for part in (parts if last in SCALES else [*parts, last])]
    for mix in sets:
        if not isinstance(mix, LayerSet):
            raise MixError(f"{text!r}: {mix} is no set of layers; as in views(5,9 @ mean; 12 @ cls; unit)")
    return LayerViews(tuple(sets), scale)  # type: ignore[arg-type] # checked above


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
    parts = [part.strip() for part in inside.split(",")]
    if len(parts) < 2 or not all(part.isidentifier() for part in parts[:2]):
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
