"""The answer in two sentences: which layers, how much better, how sure, how much cheaper; and the same on cards."""

from layerwise.measures import ChosenLayers, MixScore
from layerwise.mixes import parse_mix
from layerwise.report.findings import FEWEST_PAIRS, Compared, Findings, Gathered
from layerwise.report.page import Fact
from layerwise.search import Gain

_SURE = 0.05


def answer(gathered: Gathered) -> tuple[str, str]:
    """Two sentences."""
    if gathered.compared is not None:
        return _compared(gathered.compared), _layers(gathered.found)
    return _layers(gathered.found), _sure_and_cheap(gathered.found)


def headline(gathered: Gathered) -> tuple[Fact, ...]:
    """Four cards; with two models, the difference comes first."""
    found, compared = gathered.found, gathered.compared
    facts = _chosen_facts(found.chosen) if found.chosen is not None else _smooth_facts(found)
    if compared is not None and compared.gain is not None:
        first = Fact(f"against {compared.first.name}", _signed(compared.gain.mean), _interval(compared.gain))
        facts = (first, *facts[:3])
    return facts


def _compared(compared: Compared) -> str:
    first, second, gain = compared.first, compared.second, compared.gain
    if gain is None or second.scores is None or first.scores is None:
        tokens = [one.smooth.toksim.means[-1] for one in (second, first)]
        return (
            f"{second.name} and {first.name} are set side by side without grades: the tokens of a sentence have a "
            f"cosine of {tokens[0]:.2f} in the last layer of the one and {tokens[1]:.2f} in that of the other."
        )
    scores = f"{second.scores.own:.1f} against {first.scores.own:.1f} (Spearman × 100)"
    if not _is_sure(gain):
        return (
            f"{second.name} and {first.name} can't be told apart on these pairs: {scores}, a difference of "
            f"{_signed(gain.mean)} ({_interval(gain)})."
        )
    said = "better" if gain.mean > 0 else "worse"
    return f"{second.name} is {said} than {first.name}: {scores}, {_signed(gain.mean)} ({_interval(gain)})."


def _layers(found: Findings) -> str:
    chosen = found.chosen
    if chosen is None:
        why = "have no grades" if found.scores is None else f"are fewer than {FEWEST_PAIRS}"
        return f"Which layers of {found.name} are best can't be said: the pairs {why}."
    # The scores are of what each split of the pairs chose, which need not be the best set of all pairs.
    scores = f"{chosen.best.test:.1f} against {chosen.last.test:.1f} (Spearman × 100) on pairs that it has not seen"
    gain = f"{_signed(chosen.gain.mean)} ({_interval(chosen.gain)})"
    if chosen.best.mix == chosen.last.mix:
        return f"The last layer of {found.name} is its best on these pairs: a search has {scores}, {gain}."
    one = len(parse_mix(chosen.best.mix).layers) == 1
    best = f"{'layer' if one else 'layers'} {chosen.best.mix}"
    if not _gains(chosen):
        return (
            f"No set of layers of {found.name} is surely better than its last layer: the best on these pairs "
            f"{'is' if one else 'are'} {best}, and a search has {scores}, {gain}."
        )
    return (
        f"{best.capitalize()} of {found.name} {'is' if one else 'are'} the best on these pairs, and a search beats the "
        f"last layer: {scores}, {gain}."
    )


def _sure_and_cheap(found: Findings) -> str:
    chosen = found.chosen
    if chosen is None:
        return (
            f"What can be said without: in the last layer a sentence's tokens have a cosine of "
            f"{found.smooth.toksim.means[-1]:.2f}, and two random sentences one of {found.space.anisotropy[-2]:.2f}."
        )
    shares = sorted(((share, layer) for layer, share in enumerate(chosen.shares)), reverse=True)[:1]
    often = " and ".join(f"layer {layer} ({_percent(share)} of random halves)" for share, layer in shares)
    return f"The pairs agree most on {often}; {_cost(chosen)}."


def _cost(chosen: ChosenLayers) -> str:
    if chosen.blocks < chosen.all_blocks:
        saved = 1 - chosen.blocks / chosen.all_blocks
        return f"the best set runs {chosen.blocks} of {chosen.all_blocks} blocks, {_percent(saved)} fewer"
    every = f"the best set runs all {chosen.all_blocks} blocks"
    cheaper = _cheaper(chosen)
    if cheaper is None:
        return f"{every}, and none with fewer {'has half of its gain' if _gains(chosen) else 'equals the last layer'}"
    runs = f"only {cheaper.blocks}" if cheaper.blocks else "none of them"
    return f"{every}, while {cheaper.mix} runs {runs} and has {cheaper.test:.1f}"


def _cheaper(chosen: ChosenLayers) -> MixScore | None:
    """The set of the fewest blocks that has half of the gain or more; where nothing is gained, what the last has."""
    least = chosen.last.test + (chosen.gain.mean / 2 if _gains(chosen) else 0.0)
    enough = [one for one in chosen.front if one.blocks < chosen.all_blocks and one.test >= least]
    return min(enough, key=lambda one: one.blocks, default=None)


def _chosen_facts(chosen: ChosenLayers) -> tuple[Fact, ...]:
    sure = f"p = {chosen.gain.p_value:.2g}" if chosen.gain.p_value >= 0.001 else "p < 0.001"
    return (
        Fact("best layers", chosen.best.mix, f"a search has {chosen.best.test:.1f} on unseen pairs"),
        Fact("over the last layer", _signed(chosen.gain.mean), _interval(chosen.gain)),
        Fact("how sure", sure, f"halves of the pairs share {_percent(chosen.agreement)} of their layers"),
        Fact("blocks that run", f"{chosen.blocks} of {chosen.all_blocks}", f"{chosen.sets:,} sets were scored"),
    )


def _smooth_facts(found: Findings) -> tuple[Fact, ...]:
    space = found.space
    return (
        Fact("layers", str(found.material.layers), "that of the embeddings included"),
        Fact("TokSim, last layer", f"{found.smooth.toksim.means[-1]:.2f}", "tokens of a sentence; 1 is all alike"),
        Fact("anisotropy, own mix", f"{space.anisotropy[-1]:.2f}", "random sentences; 0 is spread out"),
        Fact("effective rank, own mix", f"{space.effective_rank[-1]:.0f}", f"of {found.material.model.width}"),
    )


def _gains(chosen: ChosenLayers) -> bool:
    return _is_sure(chosen.gain) and chosen.gain.mean > 0


def _is_sure(gain: Gain) -> bool:
    return gain.p_value < _SURE and (gain.low > 0 or gain.high < 0)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def _interval(gain: Gain) -> str:
    return f"95 % interval {_signed(gain.low)} to {_signed(gain.high)}"
