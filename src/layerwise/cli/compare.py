"""`layerwise compare A B ...`: two evaluations row by row, and which of many are tied with the best."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.inputs import check_file
from layerwise.cli.options import AsJson
from layerwise.cli.screen import decimals, print_json, print_line, print_table
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.files import check_writable

if TYPE_CHECKING:
    from layerwise.evaluate import Comparison, Evaluation, Ranking, Run
    from layerwise.evidence import Difference


def compare(
    a: Annotated[
        Path, typer.Argument(metavar="A", help="A result of `layerwise evaluate --out A.json`, or of mteb: its folder.")
    ],
    b: Annotated[Path | None, typer.Argument(metavar="B", help="Another result.")] = None,
    more: Annotated[list[Path] | None, typer.Argument(metavar="MORE", help="And others.")] = None,
    mix_a: Annotated[str | None, typer.Option(help="Which mix of A, if it holds several; else the first.")] = None,
    mix_b: Annotated[str | None, typer.Option(help="Which mix of B.")] = None,
    all_mixes: Annotated[
        bool, typer.Option("--all-mixes", metavar="", help="Rank every mix of every result; so for A alone.")
    ] = False,
    resamples: Annotated[int, typer.Option(help="Of the paired bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the resamples.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Draw means and ties: *.svg or *.png; of all suites if several.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare evaluations by the paired bootstrap: is B better than A, or is it chance?

    Two results are compared task by task. Several, or the mixes of one, are ranked: which are tied with the best?
    """
    paths = [path for path in (a, b, *(more or ())) if path is not None]
    for path in paths:
        if not path.is_dir():
            check_file(path, "give a result of `layerwise evaluate --out FILE.json`, or a result folder of mteb")
    if out is not None:
        _check_figure(out)
    from layerwise.evaluate import NO_ROWS, compare_runs, load_evaluation, rank_runs  # takes seconds

    evaluations = [load_evaluation(path) for path in paths]
    two = len(paths) == 2 and not all_mixes
    mixes = [mix_a, mix_b, *[None] * len(paths)]
    chosen = [
        list(evaluation.runs) if all_mixes or len(paths) == 1 else [_pick(evaluation, mix, path)]
        for evaluation, mix, path in zip(evaluations, mixes, paths, strict=False)
    ]
    lines = compare_runs(chosen[0][0], chosen[1][0], seed=seed, resamples=resamples) if two else []
    rankings: list[Ranking] = []
    of_mteb = any(path.is_dir() for path in paths) and any(line.note == NO_ROWS for line in lines)
    if not two or out is not None or of_mteb or sum(line.gain is not None for line in lines) > 1:
        rankings = rank_runs(_named(evaluations, chosen, paths), seed=seed, resamples=resamples)
    if out is not None:
        _draw(rankings[-1], out)
    sides = [(evaluation.model, runs[0].mix) for evaluation, runs in zip(evaluations, chosen, strict=True)]
    if as_json:
        pair = {name: dict(zip(("model", "mix"), side, strict=True)) for name, side in zip("ab", sides, strict=False)}
        facts = pair | {"tasks": {line.task: line.as_dict() for line in lines}} if two else {}
        ranked = {"rankings": [ranking.as_dict() for ranking in rankings]}
        print_json(facts | ranked | {"resamples": resamples, "seed": seed})
        return
    if two:
        print_line("   ".join(f"{name}: {model} by {mix}" for name, (model, mix) in zip("AB", sides, strict=True)))
        print_table(("task", "A", "B", "B - A", "95 % interval", "p"), [_row(line) for line in lines])
    for ranking in rankings:
        _show(ranking)
    if out is not None:
        print_line(f"wrote {out}")


def _check_figure(out: Path) -> None:
    if out.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"{out}: its ending {out.suffix!r} is none of .svg, .png")
    check_writable(out)
    require("report", "`layerwise compare -o`", "matplotlib")


def _pick(evaluation: "Evaluation", mix: str | None, path: Path) -> "Run":
    for run in evaluation.runs:
        if mix in (None, run.mix):
            return run
    raise InputError(f"{path}: no mix {mix!r}; it has {', '.join(run.mix for run in evaluation.runs)}")


def _named(
    evaluations: "Sequence[Evaluation]", chosen: "Sequence[Sequence[Run]]", paths: Sequence[Path]
) -> "dict[str, Run]":
    """Label runs by model or mix, whichever differ, otherwise by file."""
    entries = [
        (evaluation.model, run.mix, path, run)
        for evaluation, runs, path in zip(evaluations, chosen, paths, strict=True)
        for run in runs
    ]
    models, mixes = ({entry[place] for entry in entries} for place in (0, 1))
    named: dict[str, Run] = {}
    for model, mix, path, run in entries:
        name = model if len(mixes) == 1 else mix if len(models) == 1 else f"{model}, {mix}"
        same = sum((model, mix) == entry[:2] for entry in entries)
        name = name if same == 1 else f"{name} ({path})"
        while name in named:
            name += "'"
        named[name] = run
    return named


def _row(line: "Comparison") -> tuple[str, ...]:
    from layerwise.evaluate import shown

    scores = (line.task, shown(line.a), shown(line.b))
    if line.gain is None:
        return (*scores, "", line.note, "")
    gain = line.gain
    return (*scores, f"{gain.mean:+.2f}", f"{gain.low:+.2f} to {gain.high:+.2f}", decimals(gain.p_value, 3))


def _show(ranking: "Ranking") -> None:
    """Print a table, the best first, and an explanation of its columns."""
    rows = []
    for run in ranking.runs:
        differences = run.by_rows, run.by_tasks
        is_best = run is ranking.runs[0]
        ties = [name for name, gap in zip(("rows", "tasks"), differences, strict=True) if gap is not None and gap.tied]
        tied = "best" if is_best else " and ".join(ties)
        cells = ["" if is_best else _interval(gap) for gap in differences]
        gap = run.mean - ranking.runs[0].mean
        rows.append((run.name, f"{run.mean:.2f}", "" if is_best else f"{gap:+.2f}", *cells, tied))
    title = f"{ranking.suite}: mean of {len(ranking.tasks)} task{'s' * (len(ranking.tasks) > 1)}, against the best"
    print_table(("", "mean", "difference", "95 % by rows", "95 % by tasks", "tied by"), rows, title=title)
    unresampled = [task for task in ranking.tasks if task not in ranking.resampled]
    if unresampled:
        print_line(f"without rows to resample: {', '.join(unresampled)}")
    for task, note in ranking.left_out.items():
        print_line(f"{task} is left out: {note}")


def _interval(difference: "Difference | None") -> str:
    return "-" if difference is None else f"{difference.low:+.2f} to {difference.high:+.2f}"


def _draw(ranking: "Ranking", out: Path) -> None:
    from layerwise.plots import means_with_ties, save_figure

    def intervals(by: str) -> list[tuple[float, float]] | None:
        differences: list[Difference | None] = [getattr(run, by) for run in ranking.runs]
        known = [(one.low, one.high) for one in differences if one is not None]
        return known or None  # all runs have one, or none

    drawing = means_with_ties(
        names=[run.name for run in ranking.runs],
        means=[run.mean for run in ranking.runs],
        by_rows=intervals("by_rows"),
        by_tasks=intervals("by_tasks"),
        measure=f"mean of {len(ranking.tasks)} tasks × 100",
        title=ranking.suite,
    )
    save_figure(drawing, out)
