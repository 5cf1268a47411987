"""Suggests a recipe for a file of text, by its columns, its number of rows and the model."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

from layerwise.data import RowSource, column_names, find_tasks, guess_format
from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.train.loop.settings import absolute

_SAMPLED = 500  # rows that are inspected
_ENOUGH = 200_000  # unlabelled sentences: more are left out by `limit`
_STEPS = 500
_SMALL = 60_000_000  # parameters
_SEARCHED = "searched"  # the teacher of the recipe smollm-distil
_DISTIL_STEPS = 1000  # its steps, and the relative depth of its pooler: layer 26 of 30
_DISTIL_DEPTH = 26 / 30
_MASK_POOLER = "last @ mask in means"
_LABELS = ("score", "label", "similarity", "relatedness", "class", "category", "target", "grade", "sentiment")
_ROLES = (
    ("anchor", "query", "premise", "question", "sentence1", "text1", "sent0", "source_text"),
    ("positive", "entailment", "entailed", "answer", "passage", "paraphrase", "sentence2", "text2", "sent1"),
    ("negative", "contradiction", "contradicted", "hard_negative", "hard_neg", "sentence3", "text3"),
)


@dataclass(frozen=True)
class Columns:
    """The contents of a file.

    Attributes:
        texts: The columns of texts: a sentence, a pair, or a pair and a hard negative.
        label: The column of scores or classes; empty if there is none.
        rows: The number of rows.
    """

    texts: tuple[str, ...]
    label: str
    rows: int

    @property
    def kind(self) -> str:
        """A description of the columns."""
        return ("sentences", "pairs", "triples")[len(self.texts) - 1] + (" with labels" if self.label else "")


@dataclass
class Suggestion:
    """A recipe as TOML, the recipe that it extends, and the reasons."""

    extends: str
    toml: str = ""
    reasons: list[str] = field(default_factory=list)


def suggest(corpus: str, *, model: str = "default", dev: str = "") -> Suggestion:
    """Suggest a recipe for a file of text.

    Args:
        corpus: Text, CSV, TSV, JSONL or Parquet.
        model: The encoder to train.
        dev: The task, or task file, whose graded pairs pick the best step; without it the last step's weights are kept.
    """
    if dev:
        find_tasks([dev])  # raises for an unknown task
    columns = inspect_columns(corpus)
    if columns.label:
        raise InputError(
            f"{corpus}: holds {columns.kind} (column {columns.label!r}); declare it in a task file and train with "
            f"`layerwise multitask TASKS.toml --model {shlex.quote(model)}`, or give a file without that column"
        )
    encoder = LayerEncoder(model, device="cpu")
    suggestion = Suggestion(("small-simcse", "small-sup-eq6", "small-sup")[len(columns.texts) - 1])
    suggestion.reasons.append(f"{columns.rows:,} rows of {columns.kind} ({', '.join(columns.texts)}): {_why(columns)}")
    if len(columns.texts) == 1 and _is_plain_decoder(encoder):
        _distil_own_views(suggestion, corpus, columns, encoder, model=model, dev=dev)
        return suggestion
    pooler = _pooler(encoder, suggestion.reasons)
    tables: dict[str, dict[str, Any]] = {
        "data": {"files": [absolute(corpus)], "columns": list(columns.texts)},
        "model": {"encoder": absolute(model), "pooler": pooler, "head": "none", "keep_head": False},
        "train": _training(columns, encoder, suggestion.reasons),
        "dev": _dev(dev),
    }
    if len(columns.texts) == 1:
        tables["data"] |= {"limit": _ENOUGH, "repetition": 0.32}
        suggestion.reasons.append("words repeated in the second view, so that length does not give positives away")
        if pooler == _MASK_POOLER:
            suggestion.reasons.append(
                "a teacher gives more, and needs no labels: the recipe small-prompt-views learns what a search finds "
                "in a language model"
            )
    suggestion.reasons.append(_why_dev(dev))
    suggestion.toml = _toml(suggestion, tables)
    return suggestion


def _distil_own_views(
    suggestion: Suggestion, corpus: str, columns: Columns, encoder: LayerEncoder, *, model: str, dev: str
) -> None:
    """Complete the suggestion for a decoder and sentences: search its views, and distil them into one pass."""
    suggestion.extends = "smollm-distil"
    what = f"{shlex.quote(corpus)} --no-labels all"
    if dev:
        what = f"{shlex.quote(dev)} --remove mean --corpus {shlex.quote(corpus)}"
    elif guess_format(corpus) != "text":
        what += f" --left {shlex.quote(columns.texts[0])}"
    search = f"layerwise search {shlex.quote(model)} {what} --prompts auto --save {_SEARCHED}"
    batch, epochs = _batches(columns)
    steps = min(_DISTIL_STEPS, ceil(columns.rows / batch) * epochs)
    layer = max(1, round(_DISTIL_DEPTH * encoder.depth))
    suggestion.reasons = [
        f"{columns.rows:,} rows of sentences ({columns.texts[0]}) and a decoder: it learns its own searched views in "
        "one pass, without labels",
        f"first search these views and save them as the teacher: `{search}`",
        "SimCSE lowered the score of SmolLM2's best view in our runs; distilling its searched views raised it",
        f"layer {layer} of {encoder.depth}, the last token of a prompt: the place that did best with SmolLM2",
        f"batches of {batch}, {steps} steps",
        _why_dev(dev),
    ]
    tables: dict[str, dict[str, Any]] = {
        "data": {"files": [absolute(corpus)], "columns": list(columns.texts)},
        "model": {"encoder": absolute(model), "pooler": f"{layer} @ last in situation"},
        "train": {"batch_size": batch, "steps": steps},
        "dev": _dev(dev),
    }
    suggestion.toml = _toml(suggestion, tables)


def _is_plain_decoder(encoder: LayerEncoder) -> bool:
    """Whether the model is a language model without a mask token, and no sentence encoder."""
    return encoder.tokenizer.mask_token is None and not (encoder.folder.root / "modules.json").is_file()


def _dev(dev: str) -> dict[str, Any]:
    return {"task": absolute(dev) if dev else "", "patience": 0, "test": []}


def _why_dev(dev: str) -> str:
    return (
        f"{dev} picks the best step" if dev else "no graded pairs: the last step's weights are kept; --dev gives some"
    )


def pairs_task(pairs: str) -> str:
    """Return the task file, as TOML, of a file of graded pairs."""
    columns = inspect_columns(pairs)
    if len(columns.texts) != 2 or not columns.label:
        raise InputError(f"{pairs}: holds {columns.kind}; dev pairs have two columns of texts and one of scores")
    named = {"left": columns.texts[0], "right": columns.texts[1], "label": columns.label}
    shown = ", ".join(f"{place} = {json.dumps(name, ensure_ascii=False)}" for place, name in named.items())
    file = json.dumps(absolute(pairs), ensure_ascii=False)
    return f'[[task]]\nname = "dev-pairs"\nkind = "sts"\nfile = {file}\ncolumns = {{ {shown} }}\n'


def inspect_columns(corpus: str) -> Columns:
    """Determine the columns of a file from its first rows."""
    names = column_names(corpus) if corpus else ()
    if not names:
        raise InputError(f"{corpus}: has no columns; give a text file, or CSV, TSV, JSONL or Parquet with names")
    if guess_format(corpus) == "text":
        rows = [(row.values[0],) for row in islice(RowSource.of(corpus, names), _SAMPLED)]
    else:
        rows = [row.values for row in islice(RowSource.of(corpus, names), _SAMPLED)]
    if len(rows) < 2:
        raise InputError(f"{corpus}: has {len(rows)} row(s); give two or more")
    label = next((name for name in names if name.lower() in _LABELS), "")
    texts = [
        name for name, *values in zip(names, *rows, strict=True) if name != label and _are_texts(values, len(names))
    ]
    if not texts:
        raise InputError(f"{corpus}: none of its columns {', '.join(names)} holds texts; give a file with sentences")
    count = sum(1 for _ in RowSource.of(corpus, texts[:1]))
    return Columns(_in_roles(texts)[:3], label, count)


def _are_texts(values: Sequence[Any], columns: int) -> bool:
    """Whether the values are distinct texts, not numbers and not a few names of sources or splits."""
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    if len(texts) < len(values) / 2:
        return False
    numbers = sum(text.strip().lstrip("+-").replace(".", "", 1).isdecimal() for text in texts)
    return numbers < len(texts) / 2 and (columns == 1 or len(set(texts)) > max(1, len(texts) // 10))


def _in_roles(texts: Sequence[str]) -> tuple[str, ...]:
    """Order anchor, positive and negative by their usual names, otherwise as in the file."""
    by_role = [next((name for name in texts if name.lower() in role), "") for role in _ROLES]
    named = [name for name in by_role if name]
    return tuple(named if by_role[0] and by_role[1] else texts)


def _why(columns: Columns) -> str:
    if len(columns.texts) == 1:
        return "SimCSE, a sentence is its own positive"
    if len(columns.texts) == 2:
        return "the second column is the positive, other rows of the batch are negatives"
    return "the second column is the positive, the third a hard negative"


def _pooler(encoder: LayerEncoder, reasons: list[str]) -> str:
    """Choose the pooler for a model."""
    if (encoder.folder.root / "modules.json").is_file():
        mix = str(LayerModel.load(encoder.name, device="cpu").mix)
        reasons.append(f"{Path(encoder.name).name} makes sentence embeddings already: its own pooling, {mix}")
        return mix
    if encoder.tokenizer.mask_token is None:
        reasons.append("a decoder: the last token of a prompt that asks for the meaning is pooled (PromptEOL)")
        return "last @ last in eol"
    reasons.append("a masked language model: the mask token of a prompt is pooled (PromptBERT)")
    return _MASK_POOLER


def _training(columns: Columns, encoder: LayerEncoder, reasons: list[str]) -> dict[str, Any]:
    """Choose batch size, epochs and learning rate by the number of rows and the size of the model."""
    rows = min(columns.rows, _ENOUGH) if len(columns.texts) == 1 else columns.rows
    batch, epochs = _batches(columns)
    parameters = sum(parameter.numel() for parameter in encoder.model.parameters())
    small = parameters < _SMALL
    rate = 1e-4 if small else 3e-5
    if (encoder.folder.root / "modules.json").is_file():
        rate = 2e-5
    reasons.append(f"{parameters / 1e6:.1f} million parameters: learning rate {rate:g}")
    reasons.append(f"batches of {batch}, {epochs} pass(es) over the rows: about {ceil(rows / batch) * epochs} steps")
    return {"batch_size": batch, "epochs": epochs, "learning_rate": rate}


def _batches(columns: Columns) -> tuple[int, int]:
    """Choose batch size and epochs by the number of rows."""
    rows = min(columns.rows, _ENOUGH) if len(columns.texts) == 1 else columns.rows
    batch = next((size for size in (128, 64, 32, 16, 8, 4) if rows >= 8 * size), 2)
    return batch, min(10, max(1, ceil(_STEPS * batch / rows)))


def _toml(suggestion: Suggestion, tables: dict[str, dict[str, Any]]) -> str:
    lines = [f"# {reason}" for reason in suggestion.reasons]
    lines += ["", f'extends = "{suggestion.extends}"']
    for name, values in tables.items():
        lines += [
            "",
            f"[{name}]",
            *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()),
        ]
    return "\n".join(lines) + "\n"
