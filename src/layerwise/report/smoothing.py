"""The answer to "Is it over-smoothed?" in words: how much, by which measure, and what follows."""

import numpy as np

from layerwise.measures import ChosenLayers, LayerScores, SetSim, TokSim
from layerwise.report.data import ModelResults, ReportData

_SMOOTHED, _CLEAR = 0.8, 0.5  # TokSim of the last layer; the bounds are ours, SSCL's paper names none
_REPEATS = 0.95  # SetSim of the last two layers


def smoothing_answer(data: ReportData) -> str:
    """A paragraph on the model, and one on its baseline."""
    return "\n\n".join(_answer(results, named=len(data.models) > 1) for results in reversed(data.models))


def _answer(results: ModelResults, *, named: bool) -> str:
    name = f"{results.name}: " if named else ""
    tokens = results.get(TokSim).means
    if np.isnan(tokens[-1]):
        return f"{name}It cannot be said: no sentence has two tokens."
    sentences = (_degree(tokens), _last_step(results.get(SetSim)), _consequence(results, float(tokens[-1])))
    return name + " ".join(sentences)


def _degree(tokens: np.ndarray) -> str:
    last, lowest = float(tokens[-1]), int(np.nanargmin(tokens))
    degree = "Yes" if last >= _SMOOTHED else "No" if last < _CLEAR else "Partly"
    way = f"it is {tokens[lowest]:.2f} in layer {lowest} and " if lowest < len(tokens) - 1 else "it is "
    return (
        f"{degree}, by TokSim, the mean cosine of two tokens of a sentence: {way}{last:.2f} in the last layer "
        f"(from {_SMOOTHED} on we say yes, below {_CLEAR} no)."
    )


def _last_step(layers: SetSim) -> str:
    cosine = float(layers.of("mean")[-1])
    effect = "it adds little" if cosine >= _REPEATS else "it still changes the embedding"
    return f"The last layer's embedding has a cosine of {cosine:.2f} to that of the layer below (SetSim): {effect}."


def _consequence(results: ModelResults, tokens: float) -> str:
    """What the scores of single layers say of it, and what can be done."""
    scores = results.find(LayerScores)
    if scores is None:
        return "What it costs cannot be said, for the pairs have no grades."
    curve = scores.of(scores.mix_pooling) if scores.mix_pooling in scores.poolings else scores.of("mean")
    if np.isnan(curve[-1]):
        return "What it costs cannot be said, for the last layer has no score."
    best, last = int(np.nanargmax(curve)), len(curve) - 1
    chosen = results.find(ChosenLayers)
    use = "use what the search chooses" if chosen is not None and chosen.verdict.is_gain else "the search decides"
    if best == last:
        effect = "It does no harm here" if tokens >= _CLEAR else "Nothing has to be done against it"
        return f"{effect}: no single layer has a higher score than the last ({curve[last]:.1f})."
    lower = f"layer {best} alone has a score of {curve[best]:.1f}, the last {curve[last]:.1f}"
    if tokens < _CLEAR:
        return f"Where a lower layer is better ({lower}), there is another reason: {use}."
    return (
        f"It may cost score: {lower}. {use[0].upper()}{use[1:]}; a training with lower layers as negatives works "
        "against it (recipe small-sscl-simcse)."
    )
