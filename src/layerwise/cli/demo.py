"""`layerwise demo`: the main job on the embedded default encoder, from layers to a saved model and a search."""

import sys
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.options import AsJson, Device, Model
from layerwise.cli.screen import print_json, print_line, print_table
from layerwise.errors import ModelError
from layerwise.muted import muted

if TYPE_CHECKING:
    from layerwise.evaluate import DemoScores
    from layerwise.model import LayerModel
    from layerwise.search import ViewResult

_QUERIES = ("Can I get a refund?", "Why is space dark although there are so many stars?")


def demo(
    model: Model = "default",
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the model, the pairs and the corpus go.")] = Path(
        "demo-output"
    ),
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Score every layer and set of layers, save the model of the best, embed a small corpus and search it.

    Then the views of a decoder, SmolLM2, where its package is installed.
    """
    from layerwise.evaluate import score_demo_pairs
    from layerwise.model import LayerModel

    loaded = LayerModel.load(model, device=device)
    scores = score_demo_pairs(loaded)
    best = scores.search.model
    best.save(out / "model", overwrite=True)
    _leave_files(out)
    answers = _search(LayerModel.load(out / "model", device=device), out)
    if as_json:
        views = _decoder_views(device)
        decoder = {"note": views} if isinstance(views, str) else views.as_dict()
        print_json(scores.as_dict() | {"saved": str(out / "model"), "answers": answers, "decoder": decoder})
        return
    _show(scores)
    print_line(
        f"Saved the model of {best.mix} in {out / 'model'}; pairs.csv and corpus.txt there are what it was tried on.\n"
    )
    for query, hits in answers.items():
        rows = [(f"{hit['score']:.3f}", hit["text"]) for hit in hits]
        print_table(("cosine", query), rows)
    _show_decoder(_decoder_views(device))


def _decoder_views(device: str | None) -> "ViewResult | str":
    """The search of SmolLM2's views, or why there is none."""
    from layerwise.encoder import smollm2_folder
    from layerwise.evaluate import search_demo_views
    from layerwise.model import LayerModel

    try:
        folder = smollm2_folder()
    except ModelError as error:
        return str(error)
    with muted("layerwise.search"):
        return search_demo_views(LayerModel.load(folder, device=device), show_progress_bar=sys.stderr.isatty())


def _show_decoder(found: "ViewResult | str") -> None:
    print_line("\nA decoder, without training: prompts, token poolings and layers searched together.")
    if isinstance(found, str):
        print_line(f"{found}, to see it here.\n")
        return
    search = found.search
    rows = [
        (name, str(choice.mix), str(cost), _points(choice.test))
        for name, choice, cost in (
            ("last layer", search.last_, search.prices_.of_mix(search.last_.mix)),
            ("best views", search.best_, search.cost_),
        )
    ]
    title = f"{found.searched.encoder.folder.root.name}: Spearman x 100 on {search.report_.test_pairs} pairs"
    print_table(("", "views", "cost", "unseen"), rows, title=title)
    print_line(f"{found.verdict}\n")


def _show(scores: "DemoScores") -> None:
    from layerwise.evaluate import DEMO_POOLINGS

    result = scores.search
    report = result.search.report_
    rows = [(name, *(_points(row[p]) for p in DEMO_POOLINGS)) for name, row in scores.table().items()]
    title = f"{scores.encoder}: Spearman x 100 on {report.test_pairs} pairs"
    print_table(("layers", *DEMO_POOLINGS), rows, title=title)
    best, last = result.search.best_, result.search.last_
    print_line(
        f"{report.dev_pairs} other pairs choose {best.mix} among {len(result.search.table_):,} sets of layers: it has "
        f"{_points(best.test)} here, the last layer {_points(last.test)}.\n{result.verdict}"
    )
    for warning in result.warnings:
        print_line(f"Note: {warning}.")
    print_line("A demonstration on pairs written for it, not a benchmark.\n")


def _points(score: float | None) -> str:
    return "-" if score is None or isnan(score) else f"{100 * score:.1f}"


def _leave_files(out: Path) -> None:
    """Pairs and corpus as files such as a user's, to try the other commands on."""
    from importlib import resources

    from layerwise.files import atomic_file

    for name in ("pairs.csv", "corpus.txt"):
        with atomic_file(out / name) as file:
            file.write_bytes(resources.files("layerwise.data").joinpath(f"demo_{name}").read_bytes())


def _search(model: "LayerModel", out: Path) -> dict[str, list[dict[str, Any]]]:
    """Embed the corpus as any other file, and search it for the passages nearest to the queries."""
    import numpy as np
    import pyarrow.parquet as pq
    import torch
    from sentence_transformers.util import semantic_search

    from layerwise.data import RowSource
    from layerwise.embed import EmbedJob, ModelChoice, run_embed

    job = EmbedJob(RowSource.of(str(out / "corpus.txt"), ("text", "text")))
    choice = ModelChoice(str(out / "model"), options={"device": str(model.encoder.device)})
    run_embed(job, choice, out / "corpus", overwrite=True)
    table = pq.read_table(out / "corpus", columns=["text", "embedding"])
    texts = table["text"].to_pylist()
    corpus = torch.from_numpy(np.stack(table["embedding"].to_numpy()))
    results = semantic_search(model.encode_query(list(_QUERIES), convert_to_tensor=True).cpu(), corpus, top_k=3)
    return {
        query: [{"score": round(hit["score"], 4), "text": texts[hit["corpus_id"]]} for hit in hits]
        for query, hits in zip(_QUERIES, results, strict=True)
    }
