"""`layerwise compare A B`: two evaluations, row by row."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.inputs import check_file
from layerwise.cli.options import AsJson
from layerwise.cli.screen import decimals, print_json, print_line, print_table
from layerwise.errors import InputError

if TYPE_CHECKING:
    from layerwise.evaluate import Comparison, Evaluation, Run


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A result of `layerwise evaluate --out A.json`.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another result.")],
    mix_a: Annotated[str | None, typer.Option(help="Which mix of A, if it holds several; else the first.")] = None,
    mix_b: Annotated[str | None, typer.Option(help="Which mix of B.")] = None,
    resamples: Annotated[int, typer.Option(help="Of the paired bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the resamples.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two evaluations by the paired bootstrap: is B better than A, or is it chance?"""
    for path in (a, b):
        check_file(path, "give a result of `layerwise evaluate --out FILE.json`")
    from layerwise.evaluate import Evaluation, compare_runs  # takes seconds

    one, other = Evaluation.load(a), Evaluation.load(b)
    runs = _pick(one, mix_a, a), _pick(other, mix_b, b)
    lines = compare_runs(*runs, seed=seed, resamples=resamples)
    if as_json:
        sides = {
            name: {"model": evaluation.model, "mix": run.mix}
            for name, evaluation, run in zip("ab", (one, other), runs, strict=True)
        }
        print_json(
            sides | {"tasks": {line.task: line.as_dict() for line in lines}, "resamples": resamples, "seed": seed}
        )
        return
    print_line(f"A: {one.model} by {runs[0].mix}   B: {other.model} by {runs[1].mix}")
    print_table(("task", "A", "B", "B - A", "95 % interval", "p"), [_row(line) for line in lines])


def _pick(evaluation: "Evaluation", mix: str | None, path: Path) -> "Run":
    for run in evaluation.runs:
        if mix in (None, run.mix):
            return run
    raise InputError(f"{path}: no mix {mix!r}; it has {', '.join(run.mix for run in evaluation.runs)}")


def _row(line: "Comparison") -> tuple[str, ...]:
    from layerwise.evaluate import shown

    scores = (line.task, shown(line.a), shown(line.b))
    if line.gain is None:
        return (*scores, "", line.note, "")
    gain = line.gain
    return (*scores, f"{gain.mean:+.2f}", f"{gain.low:+.2f} to {gain.high:+.2f}", decimals(gain.p_value, 3))
