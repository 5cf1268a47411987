"""`layerwise multitask RECIPE`: train one encoder on several labelled tasks, with one seed or several."""

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.inputs import check_file, check_split
from layerwise.cli.options import AsJson, DataFolder, Device
from layerwise.cli.recipes import check_command
from layerwise.cli.screen import print_table
from layerwise.cli.training import (
    Encoder,
    KeepCheckpoints,
    NoTest,
    Out,
    Resume,
    Seeds,
    over_seeds,
    print_models,
    run_job,
    seed_numbers,
    test_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from layerwise.train import SeedsResult


def multitask(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (cs224n), a recipe file or a task file *.toml.")],
    model: Encoder = None,
    data: DataFolder = None,
    out: Out = None,
    seeds: Seeds = "0",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: train.learning_rate=1e-4, objective.sst.head=mlp (repeat)."),
    ] = None,
    resume: Resume = False,
    keep_checkpoints: KeepCheckpoints = False,
    no_test: NoTest = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train one encoder on several tasks. The best step by the overall dev score is saved as a model folder."""
    check_split(None, data)
    if recipe.endswith(".toml"):
        check_file(recipe, "`layerwise recipes` lists the shipped recipes")
    from layerwise.train import load_multitask_recipe

    numbers = seed_numbers(seeds)
    check_command(recipe, "multitask")
    settings = load_multitask_recipe(recipe, sets or (), data=data)
    if no_test:
        settings = settings.replaced(dev=settings.dev.replaced(test=()))
    from layerwise.train import MultitaskJob  # takes seconds: the mistakes above are reported first

    run_job(
        MultitaskJob(settings, encoder=model, data=data),
        out,
        seeds=numbers,
        resume=resume,
        device=device,
        keep_checkpoints=keep_checkpoints,
        as_json=as_json,
        show=_show,
    )


def _cell(scores: "Mapping[str, Any]", baselines: "Mapping[str, Mapping[str, float]]", score: str, kind: str) -> str:
    """Return a score of the training, or of a baseline by name."""
    from layerwise.train import format_spread

    if not kind:
        return format_spread(scores[score], 4) if score in scores else ""
    value = baselines.get(score, {}).get(kind)
    return "" if value is None else f"{value:.4f}"


def _show(name: str, result: "SeedsResult") -> None:
    summary, baselines = result.summary, result.summary["baselines"]
    roles = [role for role in ("dev", "test") if role in summary]
    names = list(dict.fromkeys(kind for role in roles for one in baselines.get(role, {}).values() for kind in one))
    columns = [(role, name) for role in roles for name in ("", *names)]
    rows = [
        (score, *(_cell(summary[role], baselines.get(role, {}), score, kind) for role, kind in columns))
        for score in summary["dev"]
    ]
    heads = [f"{role}, {kind}" if kind else role for role, kind in columns]
    print_table(("task/metric", *heads), rows, title=f"{name}: {over_seeds(result)}")
    if tests := test_rows(result):
        print_table(("test task", "score x 100"), tests, title="embeddings on test tasks")
    print_models(result, lambda path: f"use it: layerwise predict {shlex.quote(str(path))} --task NAME INPUT -o OUT")
