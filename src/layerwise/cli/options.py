"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str, typer.Argument(help="A model folder, a hub name, or 'default' for the embedded all-MiniLM-L6-v2.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace OUT where it exists.")]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of a table.")]
Mix = Annotated[
    str | None,
    typer.Option(
        help="A layer mix such as 'last', 'last-4', '0,1,12', '1-3,12 @ cls' instead of the model's mix. "
        "The heads and normalising that follow the model's mix are then left out."
    ),
]
DataFolder = Annotated[
    str | None, typer.Option("--data", help="The data folder; without, $LAYERWISE_DATA, then what was fetched.")
]
Device = Annotated[str | None, typer.Option(help="Such as cpu, cuda, cuda:1, mps; without, a GPU if there is one.")]
Dtype = Annotated[str, typer.Option(help="Numbers inside the encoder: float32, bfloat16 or float16.")]
Backend = Annotated[
    str | None, typer.Option(help="torch (the default), or onnx: on a CPU the same numbers in less time.")
]
Precision = Annotated[
    str, typer.Option(help="float, or int8: on a CPU, by ONNX Runtime, faster with a small, measured loss.")
]
MaxLength = Annotated[int | None, typer.Option(help="Cut sentences to so many tokens.")]
Revision = Annotated[str | None, typer.Option(help="A branch, tag or commit of a hub model.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", metavar="", help="Run code that comes with the model.")
]

InputFormat = Annotated[str | None, typer.Option(help="text, csv, tsv, jsonl or parquet; else by ending.")]
Encoding = Annotated[str | None, typer.Option(help="Of a file that is text, such as utf-16 or latin-1; else UTF-8.")]
Delimiter = Annotated[str | None, typer.Option(help="Between CSV fields: a character, or tab, semicolon, pipe.")]

PairsOrTask = Annotated[
    str | None,
    typer.Option(help="CSV, TSV, JSONL or Parquet, or a task such as stsb; without, pairs of the package."),
]
LeftColumn = Annotated[str, typer.Option(help="The column of the first sentence.")]
RightColumn = Annotated[str, typer.Option(help="The column of the second sentence.")]
ScoreColumn = Annotated[str | None, typer.Option(help="The column of the score; 'score' if there is one.")]
TaskSplit = Annotated[str | None, typer.Option(help="Which rows of a task: test (without it), dev or train.")]
MostPairs = Annotated[int, typer.Option(help="Pairs at most, drawn with --seed.")]
DrawSeed = Annotated[int, typer.Option(help="Of draws, splits and t-SNE.")]
Trainings = Annotated[
    list[Path] | None, typer.Option("--train", help="The folder of a training, for its curves (repeat).")
]
