"""The answer in few sentences: which layers, how much better, how certain, how much cheaper; and the same on cards."""

from layerwise.evidence import Gain
from layerwise.measures import FEWEST_PAIRS, ChosenLayers, Geometry, LayerScores, MixScore, TokSim
from layerwise.report.data import ModelResults, ReportData
from layerwise.report.page import Fact

_VERY_SURE = 0.01


def answer(data: ReportData) -> tuple[str, ...]:
    """Two sentences, and a warning for each model that has seen the texts before."""
    warnings = [warning for results in data.models if (warning := _seen(results))]
    if data.baseline is not None:
        return _comparison(data.model, data.baseline, data.gain), _layers(data.model), *warnings
    return _layers(data.model), _certainty_and_cost(data.model), *warnings


def headline(data: ReportData) -> tuple[Fact, ...]:
    """Four cards; with two models, the difference comes first."""
    chosen = data.model.find(ChosenLayers)
    facts = _space_facts(data.model) if chosen is None else _chosen_facts(chosen)
    if data.baseline is not None and data.gain is not None:
        first = Fact(f"against {data.baseline.name}", _signed(data.gain.mean), _interval(data.gain))
        facts = (first, *facts[:3])
    return facts


def _comparison(model: ModelResults, baseline: ModelResults, gain: Gain | None) -> str:
    if gain is None:
        tokens = [results.get(TokSim).means[-1] for results in (model, baseline)]
        return (
            f"{model.name} and {baseline.name} are set side by side without grades: the tokens of a sentence have a "
            f"cosine of {tokens[0]:.2f} in the last layer of the one and {tokens[1]:.2f} in that of the other."
        )
    score, baseline_score = (results.get(LayerScores).mix_score for results in (model, baseline))
    scores = f"{score:.1f} against {baseline_score:.1f} (Spearman × 100)"
    if not gain.is_sure:
        return (
            f"{model.name} and {baseline.name} cannot be told apart on these pairs: {scores}, a difference of "
            f"{_signed(gain.mean)} ({_interval(gain)})."
        )
    better = "better" if gain.mean > 0 else "worse"
    return f"{model.name} is {better} than {baseline.name}: {scores}, {_signed(gain.mean)} ({_interval(gain)})."


def _seen(results: ModelResults) -> str:
    """Describe which texts of the report the model was fitted, trained or selected on, or return an empty string."""
    subject = results.subject
    shares = {record: record.saw(subject.pairs.texts) for record in subject.model.fitted_on if record.digest}
    seen = [f"{_percent(share)} by its {record.what} ({record.source})" for record, share in shares.items() if share]
    return f"{results.name} has seen texts of these pairs, {', '.join(seen)}: its scores are too good." if seen else ""


def _layers(results: ModelResults) -> str:
    """The verdict of the search, in the words of `layerwise search`."""
    chosen = results.find(ChosenLayers)
    if chosen is None:
        why = "have no grades" if results.find(LayerScores) is None else f"are fewer than {FEWEST_PAIRS}"
        return f"Which layers of {results.name} are best cannot be said: the pairs {why}."
    return str(chosen.verdict)


def _certainty_and_cost(results: ModelResults) -> str:
    chosen = results.find(ChosenLayers)
    if chosen is None:
        return (
            f"What can be said without: in the last layer a sentence's tokens have a cosine of "
            f"{results.get(TokSim).means[-1]:.2f}, and two random sentences one of "
            f"{results.get(Geometry).anisotropy[-2]:.2f}."
        )
    best, last = chosen.best, chosen.last
    scores = f"the last layer has {last.test:.1f} (Spearman × 100)"
    if best.mix != last.mix:
        scores += f", the best found, {best.mix}, {best.test:.1f}"
    return f"On the {chosen.test_pairs:,} pairs that did not choose, {scores}; {_cost(chosen)}."


def _cost(chosen: ChosenLayers) -> str:
    """Describe the cost of the recommended layers, and whether fewer blocks suffice."""
    what = "the best found" if chosen.verdict.is_gain else "the last layer"
    if chosen.blocks < chosen.all_blocks:
        saved = 1 - chosen.blocks / chosen.all_blocks
        return f"{what} runs {chosen.blocks} of {chosen.all_blocks} blocks, {_percent(saved)} fewer"
    every = f"{what} runs all {chosen.all_blocks} blocks"
    cheaper = _cheaper(chosen)
    if cheaper is None:
        fewer = "has half of its gain" if chosen.verdict.is_gain else "equals it"
        return f"{every}, and no set with fewer {fewer}"
    runs = f"only {cheaper.blocks}" if cheaper.blocks else "none of them"
    return f"{every}, while {cheaper.mix} runs {runs} and has {cheaper.test:.1f}"


def _cheaper(chosen: ChosenLayers) -> MixScore | None:
    """The set of the fewest blocks with at least half of the gain; without a gain, with the last layer's score."""
    threshold = chosen.last.test + (chosen.gain.mean / 2 if chosen.verdict.is_gain else 0.0)
    enough = [mix for mix in chosen.front if mix.blocks < chosen.all_blocks and mix.test >= threshold]
    return min(enough, key=lambda mix: mix.blocks, default=None)


def _chosen_facts(chosen: ChosenLayers) -> tuple[Fact, ...]:
    halves = f"halves of the pairs share {_percent(chosen.agreement)} of their layers"
    use, detail = chosen.verdict.use, f"the best found has {chosen.best.test:.1f} on unseen pairs"
    used = "the last layer" if use.mix == chosen.verdict.baseline.mix else str(use.mix)
    return (
        Fact("use", used, detail if chosen.verdict.is_gain else f"{detail}, the last layer {chosen.last.test:.1f}"),
        Fact("best found over the last layer", _signed(chosen.gain.mean), _interval(chosen.gain)),
        Fact("how sure", _sureness(chosen), f"{_p_value(chosen.gain)}; {halves}"),
        Fact("blocks that run", f"{chosen.blocks} of {chosen.all_blocks}", f"{chosen.sets:,} sets were scored"),
    )


def _sureness(chosen: ChosenLayers) -> str:
    """Describe how certain it is that the best found beats the last layer, by the interval of its gain."""
    if chosen.best.mix == chosen.last.mix:
        return "the last layer is the best found"
    if chosen.verdict.is_gain:
        return "very sure it is better" if chosen.gain.p_value < _VERY_SURE else "sure it is better"
    return "sure it is not better" if chosen.gain.high < 0 else "not sure it is better"


def _p_value(gain: Gain) -> str:
    return f"p = {gain.p_value:.2g}" if gain.p_value >= 0.001 else "p < 0.001"


def _space_facts(results: ModelResults) -> tuple[Fact, ...]:
    geometry = results.get(Geometry)
    rank = f"{geometry.effective_rank[-1]:.0f}"
    return (
        Fact("layers", str(results.subject.layers), "that of the embeddings included"),
        Fact("TokSim, last layer", f"{results.get(TokSim).means[-1]:.2f}", "tokens of a sentence; 1 is all alike"),
        Fact("anisotropy, own mix", f"{geometry.anisotropy[-1]:.2f}", "random sentences; 0 is spread out"),
        Fact("effective rank, own mix", rank, f"of {results.subject.model.width}"),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def _interval(gain: Gain) -> str:
    return f"95 % interval {_signed(gain.low)} to {_signed(gain.high)}"
