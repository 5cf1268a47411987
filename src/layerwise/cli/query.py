"""`layerwise query INDEX "text"`: the rows of an index that are nearest to a text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.inputs import check_file
from layerwise.cli.loading import check_model
from layerwise.cli.options import AsJson, Device
from layerwise.cli.screen import print_json, print_table
from layerwise.errors import InputError

if TYPE_CHECKING:
    from layerwise.index import Hits, VectorIndex

_SHOWN = 100  # letters of a column


def query(
    index: Annotated[
        str,
        typer.Argument(
            help="A folder of `layerwise index build`, vectors of `layerwise embed`, or postgresql://host/db/table."
        ),
    ],
    text: Annotated[str | None, typer.Argument(help="The text to look for.")] = None,
    file: Annotated[Path | None, typer.Option(help="A file of texts instead, one a line.")] = None,
    k: Annotated[int, typer.Option("-k", "--top", min=1, help="Rows to show.")] = 10,
    where: Annotated[
        str | None,
        typer.Option("--filter", metavar="SQL", help='A condition of a table of PostgreSQL: "lang = :lang".'),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A value of the condition (repeat).")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Where the model that made the vectors is now; another one is refused.")
    ] = None,
    prompt_name: Annotated[
        str | None, typer.Option(help="One of the model's prompts; without, 'query' where the model has it.")
    ] = None,
    device: Device = None,
    backend: Annotated[str | None, typer.Option(help="torch or onnx; without, as the vectors were made.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", metavar="", help="Run code that comes with the model.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the rows of an index that are nearest to a text, by the model that made its vectors."""
    if (text is None) == (file is None):
        raise InputError('give one text to look for, or a file of texts: layerwise query INDEX "text" | --file FILE')
    if text is not None and not text.strip():
        raise InputError("the text to look for is empty; give some words")
    if file is not None:
        check_file(file)
    check_model(model)
    texts = [text] if text is not None else _texts(str(file))
    from layerwise.index import TableAddress, embed_queries, is_postgres, load_model_of, open_index  # takes seconds

    opened = open_index(index, where=where or "", values=dict(map(_split_param, param or ())))
    made_by = load_model_of(
        TableAddress.parse(index).shown if is_postgres(index) else index,
        opened.settings,
        opened.width,
        name=model,
        device=device,
        backend=backend,
        trust_remote_code=trust_remote_code or None,
    )
    hits = opened.search(embed_queries(made_by, opened.settings, texts, prompt_name=prompt_name), k)
    if as_json:
        print_json([_facts(opened, hits, number, query) for number, query in enumerate(texts)])
        return
    for number, query in enumerate(texts):
        _show(_facts(opened, hits, number, query), title=query if len(texts) > 1 else "")


def _split_param(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name.isidentifier():
        raise InputError(f"--param {text!r} is no NAME=VALUE; write one such as --param lang=en")
    return name, value


def _texts(path: str) -> list[str]:
    from layerwise.data import RowSource, written_text_of

    source = RowSource.of(path, ("text",), format="text")
    texts = [written_text_of(source, row, 0) for row in source]
    if not texts:
        raise InputError(f"{path}: has no texts; write one a line")
    return texts


def _facts(index: "VectorIndex", hits: "Hits", number: int, query: str) -> dict[str, Any]:
    nearest = zip(hits.rows[number].tolist(), hits.scores[number].tolist(), strict=True)
    return {
        "query": query,
        "hits": [{"row": row, "score": score, "columns": index.columns(row)} for row, score in nearest],
    }


def _show(facts: dict[str, Any], *, title: str) -> None:
    names = [name for name in (facts["hits"][0]["columns"] if facts["hits"] else ()) if name != "row"]
    rows = [
        (f"{hit['score']:.3f}", str(hit["columns"].get("row", hit["row"])), *(_short(hit["columns"][n]) for n in names))
        for hit in facts["hits"]
    ]
    print_table(("score", "row", *names), rows, title=title)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
