"""Measures as figures: from what was measured of one model or of several, by name, to a drawing."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from layerwise import plots
from layerwise.errors import InputError
from layerwise.measures import (
    BeforeAfter,
    ChosenLayers,
    Curve,
    Geometry,
    LayerNegatives,
    LayersAlike,
    LayerScores,
    LayerWeightsTaken,
    Measured,
    Projection,
    SetSim,
    Smoothing,
    Spectra,
    TokenMatrices,
    TokSim,
    TrainingCurve,
    joined_seeds,
    told_apart,
)
from layerwise.mixes import parse_mix
from layerwise.plots import LIGHT, Drawing, MarkedMix, Theme

T = TypeVar("T", bound=Measured)
Several = Mapping[str, T]


def drawn(measured: Several[Any], *, theme: Theme = LIGHT) -> Drawing:
    """The figure of a measure, taken of one model or of several: name -> what was found."""
    kind = type(next(iter(measured.values())))
    if kind not in _DRAWN:
        raise InputError("this measure has no figure of its own; write it as .json or .csv")
    return _DRAWN[kind](measured, theme)


def scores(measured: Several[LayerScores], theme: Theme = LIGHT, chosen: ChosenLayers | None = None) -> Drawing:
    """By layer; of several models, each by the pooling of its best single layer."""
    if len(measured) == 1:
        (one,) = measured.values()
        best = None if chosen is None else MarkedMix(chosen.best.test, parse_mix(chosen.best.mix).layers)
        own = {pooling: one.of(pooling) for pooling in one.poolings if not np.isnan(one.of(pooling)).all()}
        last = "mean" if chosen is None else parse_mix(chosen.last.mix).poolings[0]
        marked = last if last in own and not np.isnan(own[last][-1]) else None
        return plots.layer_curves(scores=own, last=marked, best=best, theme=theme)
    curves = {f"{name}, {one.best[0]}": one.of(one.best[0]) for name, one in measured.items()}
    if len(curves) == 2:
        return plots.before_after_curves(scores=curves, theme=theme)
    return plots.layer_curves(scores=curves, theme=theme)


def smoothing(measured: Several[Smoothing], theme: Theme = LIGHT) -> Drawing:
    """SetSim by the mean, and TokSim."""
    return plots.smoothing_curves(
        setsim={name: one.setsim.of("mean") for name, one in measured.items()},
        toksim={name: one.toksim.means for name, one in measured.items()},
        theme=theme,
    )


def token_matrices(measured: Several[TokenMatrices], theme: Theme = LIGHT) -> Drawing:
    """Of one model several layers; of several models the last layer of each."""
    if len(measured) == 1:
        (one,) = measured.values()
        return plots.token_matrices(tokens=one.tokens, matrices=one.cosines, layers=one.layers, theme=theme)
    first = next(iter(measured.values()))
    if any(one.tokens != first.tokens for one in measured.values()):
        raise InputError("the models cut the sentence into different tokens; draw each by itself")
    labels = [f"{name}, layer {one.layers[-1]}" for name, one in measured.items()]
    last = np.stack([one.cosines[-1] for one in measured.values()])
    return plots.token_matrices(tokens=first.tokens, matrices=last, layers=labels, theme=theme)


def attention(measured: Several[LayerWeightsTaken], theme: Theme = LIGHT) -> Drawing:
    """All sentences, the shortest and the longest; of several models their means."""
    if len(measured) > 1:
        return plots.attention_weights(weights={name: one.mean for name, one in measured.items()}, theme=theme)
    (one,) = measured.values()
    ends = (one.groups[0], one.groups[-1]) if len(one.groups) > 1 else ()
    return plots.attention_weights(weights={"all": one.mean} | {group.label: group.mean for group in ends}, theme=theme)


def geometry(measured: Several[Geometry], theme: Theme = LIGHT) -> Drawing:
    """Four small panels, and a level for the own mix of a model that takes more than its last layer."""
    names = ("anisotropy", "uniformity", "alignment", "effective_rank")
    panels = {
        name.replace("_", " "): {label: getattr(one, name)[:-1] for label, one in measured.items()} for name in names
    }
    kept = {name: of for name, of in panels.items() if not all(np.isnan(values).all() for values in of.values())}
    mixed = {label: one for label, one in measured.items() if _has_own_mix(one)}
    own = {
        name: {label: float(getattr(one, name.replace(" ", "_"))[-1]) for label, one in mixed.items()} for name in kept
    }
    own = {name: {label: level for label, level in levels.items() if level == level} for name, levels in own.items()}
    return plots.geometry_by_layer(measures=kept, own=own if mixed else None, theme=theme)


def _has_own_mix(one: Geometry) -> bool:
    """Whether the model's own mix lies elsewhere than its last layer."""
    return not np.allclose(one.anisotropy[-1], one.anisotropy[-2], atol=1e-5)


def variance(measured: Several[Spectra], theme: Theme = LIGHT) -> Drawing:
    """The last layer and the own mix of one model; of several, their own mixes."""
    if len(measured) > 1:
        return plots.spectra(shares={name: one.shares[-1] for name, one in measured.items()}, theme=theme)
    (one,) = measured.values()
    middle = (len(one.shares) - 1) // 2
    shares = {f"layer {middle}": one.shares[middle], "last layer": one.shares[-2], "own mix": one.shares[-1]}
    if len(one.shares[-1]) == len(one.shares[-2]) and np.allclose(one.shares[-1], one.shares[-2], atol=1e-5):
        del shares["own mix"]  # it is the last layer
    return plots.spectra(shares=shares, theme=theme)


def likeness(measured: Several[LayersAlike], theme: Theme = LIGHT) -> Drawing:
    """CKA of the layers of one model."""
    return plots.layer_likeness(matrix=np.nan_to_num(_only(measured).cka), theme=theme)


def points(measured: Several[Projection], theme: Theme = LIGHT) -> Drawing:
    """Graded pairs, a panel for each model; the same pairs, for the grades choose them."""
    first = next(iter(measured.values()))
    return plots.pair_map(
        points={name: one.points for name, one in measured.items()},
        gold=first.gold,
        texts=list(zip(first.left, first.right, strict=True)),
        method={"tsne": "t-SNE", "pca": "PCA"}[first.method],
        theme=theme,
    )


def chosen_layers(measured: Several[ChosenLayers], theme: Theme = LIGHT) -> Drawing:
    """How often random halves choose each layer."""
    one = _only(measured)
    return plots.layers_chosen(shares=one.shares, best=parse_mix(one.best.mix).layers, theme=theme)


def by_size(one: ChosenLayers, theme: Theme = LIGHT) -> Drawing:
    """Score by the number of layers."""
    return plots.score_by_size(sizes=one.by_size.x, last=one.last.test, theme=theme, **_best_set(one.by_size))


def without_layer(one: ChosenLayers, theme: Theme = LIGHT) -> Drawing:
    """Score without each layer."""
    return plots.score_without_layer(layers=one.without.x, full=one.best.test, theme=theme, **_best_set(one.without))


def _best_set(curve: Curve) -> dict[str, Any]:
    """The one line of both."""
    return {"scores": {"best set": curve.mean}, "sd": _bands({"best set": curve.sd})}


def by_pairs(one: ChosenLayers, theme: Theme = LIGHT) -> Drawing:
    """Score by the number of pairs that choose."""
    curves = {"chosen": one.by_pairs, "last layer": one.last_by_pairs}
    order = np.argsort(one.by_pairs.x)
    return plots.score_by_pairs(
        pairs=np.array(one.by_pairs.x)[order].tolist(),
        scores={name: curve.mean[order] for name, curve in curves.items()},
        sd=_bands({name: curve.sd[order] for name, curve in curves.items()}),
        theme=theme,
    )


def _bands(sd: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Without those that are of one split each, which has none."""
    return {name: values for name, values in sd.items() if not np.isnan(values).all()}


def changes(measured: Several[BeforeAfter], theme: Theme = LIGHT) -> Drawing:
    """Every figure of two models."""
    one = _only(measured)
    kept = [change for change in one.changes if not (np.isnan(change.first) or np.isnan(change.second))]
    return plots.dumbbells(
        measures=[change.name for change in kept],
        before=[change.first for change in kept],
        after=[change.second for change in kept],
        names=_two(told_apart([one.first, one.second])),
        theme=theme,
    )


def convergence(measured: Several[TrainingCurve], theme: Theme = LIGHT) -> Drawing:
    """The dev score by step of each training, seeds as a band; the loss where no dev score was logged."""
    measured = {curve.name: curve for curve in joined_seeds(list(measured.values()))}
    for name, said in (("spearman", "dev score"), ("eval_overall", "overall dev score"), ("loss", "loss")):
        series = {run: _logged(curve, name) for run, curve in measured.items()}
        kept = {run: one for run, one in series.items() if one is not None}
        if kept:
            steps = {run: one.steps for run, one in kept.items()}
            return plots.convergence(
                steps=steps, scores={run: one.values for run, one in kept.items()}, measure=said, theme=theme
            )
    raise InputError("the trainings have logged neither a dev score nor a loss")


def negatives(measured: Several[LayerNegatives], theme: Theme = LIGHT) -> Drawing:
    """One layer each; a spread is drawn where every one has several seeds."""
    found = _only(measured)
    if not found.single:
        raise InputError("the figure is of trainings with one layer as negatives; several at once are in the table")
    spreads = [choice.sd for choice in found.single]
    known = [spread for spread in spreads if spread is not None]
    return plots.layer_negatives(
        layers=[choice.layers[0] for choice in found.single],
        mean=[choice.mean for choice in found.single],
        sd=known if len(known) == len(spreads) else None,
        without=None if found.without is None else found.without.mean,
        measure=found.score,
        theme=theme,
    )


def _logged(curve: TrainingCurve, ending: str) -> Any:
    return next((one for name, one in curve.series.items() if name.endswith(ending)), None)


def _tokens_alike(measured: Several[TokSim], theme: Theme) -> Drawing:
    curves = {name: one.means for name, one in measured.items()}
    return plots.layer_curves(scores=curves, measure="cosine of tokens", theme=theme)


def _neighbours(measured: Several[SetSim], theme: Theme) -> Drawing:
    """Drawn at the upper layer of the two."""
    curves = {
        pooling if len(measured) == 1 else f"{name}, {pooling}": np.concatenate([[np.nan], one.of(pooling)])
        for name, one in measured.items()
        for pooling in one.poolings
    }
    return plots.layer_curves(scores=curves, measure="cosine to the layer below", theme=theme)


def _two(names: list[str]) -> tuple[str, str]:
    return names[0], names[1]


def _only(measured: Several[T]) -> T:
    if len(measured) > 1:
        raise InputError("this figure is of one model; draw each by itself")
    return next(iter(measured.values()))


_DRAWN: dict[type, Callable[[Any, Theme], Drawing]] = {
    LayerScores: scores,
    SetSim: _neighbours,
    TokSim: _tokens_alike,
    Smoothing: smoothing,
    TokenMatrices: token_matrices,
    LayerWeightsTaken: attention,
    Geometry: geometry,
    Spectra: variance,
    LayersAlike: likeness,
    Projection: points,
    ChosenLayers: chosen_layers,
    BeforeAfter: changes,
    TrainingCurve: convergence,
    LayerNegatives: negatives,
}
