"""Prints a selection: its scores, the verdict, quality against cost, stability and caveats."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from layerwise.cli.screen import points, print_line, print_table, spent

if TYPE_CHECKING:
    from layerwise.search import Scored, Selection, SelectionFacts

_SHOWN = 8  # best views alone, and most often chosen ones, that are shown
_OFTEN = 0.1  # share of halves from which a view is shown


def show_selection(selection: "Selection") -> None:
    """Print what was chosen, what that gains and costs, and how sure it is."""
    facts = selection.facts
    if facts.tasks is not None:
        _show_tasks(facts)
    if facts.criteria is not None:
        _show_criteria(facts)
    if selection.has_evidence:
        _show_scores(selection)
    print_line(f"{selection.verdict}\n" if selection.has_evidence else f"{selection.verdict}")
    if selection.has_evidence:
        _show_fitted(selection)
        _show_costs(selection)
        _show_stability(facts)
        _show_singles(facts)
    if any(facts.prompts):
        print_line(f"Put before the texts: {' and '.join(repr(prompt) for prompt in dict.fromkeys(facts.prompts))}.")
    for warning in facts.warnings:
        print_line(f"Note: {warning}.")
    print_line(spent(facts.seconds))


def _show_scores(selection: "Selection") -> None:
    facts = selection.facts
    protocol = facts.protocol
    many = f", means of {protocol.splits} splits" if protocol.splits > 1 else ""
    what = "" if facts.singles is not None else " of layers"
    title = (
        f"{facts.candidates}{what}, {protocol.metric} x 100; {protocol.choosing:,} {protocol.unit} choose, "
        f"{protocol.reporting:,} others report{many}"
    )
    named = [("best found", selection.chosen), ("last layer", selection.last)]
    if selection.baseline is not selection.last:
        named.insert(1, ("highest layer", selection.baseline))
    rows = [(name, _text(scored), points(scored.dev), points(scored.test)) for name, scored in named]
    if selection.unlabelled is not None:
        rows.append(("chosen without labels", _text(selection.unlabelled), "", points(selection.unlabelled.test)))
    print_table(("", "layers @ pooling" if what else "views", "dev", "unseen"), rows, title=title)


def _show_costs(selection: "Selection") -> None:
    front = selection.front
    of_views = selection.facts.singles is not None
    heads: Sequence[str] = ("blocks", "best set that needs no more", "dev", "unseen")
    rows: list[tuple[str, ...]] = [(str(one.blocks), _text(one), points(one.dev), points(one.test)) for one in front]
    if of_views:
        heads = ("passes", "work", *heads)
        costs = [one.cost for one in front]
        rows = [
            (str(len(cost.blocks)) if cost else "", f"{cost.work:.2f}" if cost else "", *row)
            for cost, row in zip(costs, rows, strict=True)
        ]
        print_line(f"The best found costs {selection.chosen.cost}.")
    print_table(heads, rows, title="Quality against cost")
    if len(front) > 1 and any(scored.test is not None for scored in front):
        cheaper = selection.cheaper
        found = f"As good, within a point, with fewer blocks: {cheaper}."
        print_line(found if cheaper else "No set with fewer blocks is surely within a point.")


def _show_fitted(selection: "Selection") -> None:
    """Of two texts that means and components could be fitted on, the one that was better."""
    fitted_on = selection.facts.fitted_on
    if fitted_on is None or selection.facts.protocol.options.get("fit_on") != "either":
        return
    corpus = selection.searched.corpus
    source = corpus.source if fitted_on == "corpus" and corpus else "the choosing pairs"
    print_line(f"Means and components were fitted on {source}: by that text they chose better.")


def _show_stability(facts: "SelectionFacts") -> None:
    if facts.stability is None:
        return
    often = [(view, share) for view, share in facts.stability.views.items() if share >= _OFTEN][:_SHOWN]
    shares = ", ".join(f"{view} ({share:.0%})" for view, share in often)
    who = "splits" if facts.protocol.metric == "accuracy" and facts.protocol.unit == "rows" else "halves"
    print_line(
        f"Most often chosen by {who} of the {facts.protocol.unit}: {shares}; agreement {facts.stability.agreement:.0%}."
    )


def _show_singles(facts: "SelectionFacts") -> None:
    if facts.singles is None:
        return
    best = [
        (max(score for score in scores if score is not None), name, scores)
        for name, scores in facts.singles.items()
        if any(score is not None and score == score for score in scores)
    ]
    alone = sorted(best, key=lambda row: -row[0])[:_SHOWN]
    rows = [(name, str(scores.index(top)), points(top)) for top, name, scores in alone]
    print_table(("pooling", "best layer", "score"), rows, title="The best views alone, on pairs that choose")


def _show_criteria(facts: "SelectionFacts") -> None:
    criteria = facts.criteria
    if criteria is None:
        return
    rows = [
        (f"chosen by {one.criterion}", one.mix, *(_number(value) for value in one.separation.values()))
        for one in criteria.proposals
    ]
    rows.append(("last layer", facts.last.mix, *(_number(value) for value in criteria.last.values())))
    title = "How many standard deviations alike and unlike sentences lie apart, by each criterion"
    print_table(("", "views", *criteria.last), rows, title=title)


def _show_tasks(facts: "SelectionFacts") -> None:
    """Scores on unseen units of each task, and the regret of each choice."""
    tasks = facts.tasks
    if tasks is None:
        return
    heads = ("layers for", "layers @ pooling", *(task.task for task in tasks.tasks), "weighted mean")
    unseen = [(one.name, one.mix, *map(points, one.unseen), points(one.mean)) for one in tasks.choices]
    regrets = [(one.name, one.mix, *map(points, one.regrets), points(one.mean_regret)) for one in tasks.choices]
    print_table(heads, unseen, title=f"{facts.candidates} of layers for {len(tasks.tasks)} tasks; unseen scores x 100")
    print_table(heads, regrets, title="Regret: what a choice loses against the task's own")
    for task in tasks.tasks:
        counted = f"{task.choosing:,} {task.unit} choose, {task.reporting:,} others report"
        print_line(f"{task.task}: {task.metric}, weight {task.weight:.2f}; {counted}.")


def _text(scored: "Scored") -> str:
    return scored.mix.in_words


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
