"""The JSON schema of every command's `--json` (draft 2020-12). Tests validate the output of real commands by them.

An object has exactly the fields written here, so that a field cannot appear, vanish or change its type unnoticed;
those after `maybe` are optional. The schemas of searches are generated from the models that they print. Numbers that
do not exist, such as a correlation of constants, are null.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": ["number", "null"]}
_TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
_ANYTHING: Schema = {}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _by_name(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _object(fields: Mapping[str, Schema], *, maybe: Mapping[str, Schema] | None = None) -> Schema:
    properties = {**fields, **(maybe or {})}
    return {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": False}


def _any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _texts(*names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, _TEXT)


def _counts(*names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, _COUNT)


def _numbers(*names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, _NUMBER)


_LAYERS = _list(_COUNT)
_FITTED_ON = _object({**_texts("what", "source"), **_counts("sentences", "different"), "digest": _TEXT_OR_NONE})

_GAIN = _object(_numbers("mean", "low", "high", "p_value"))
_ROWS = _list({"type": "object"})

# evaluate, compare
_EVALUATED = {
    "mix": _TEXT,
    "layers": _LAYERS,
    "pooling": _TEXT_OR_NONE,
    "tasks": _by_name(_by_name(_NUMBER)),
    "average": _NUMBER,
    "averages": _by_name(_NUMBER),
}
_MATRIX = _object(
    {
        "tasks": _list(_TEXT),
        "metrics": _list(_TEXT),
        "mixes": _list(_TEXT),
        "scores": _list(_list(_NUMBER)),
        "best": _by_name(_TEXT_OR_NONE),
    }
)
_MODEL_AND_MIX = _object(_texts("model", "mix"))
_DIFFERENCE = _any_of(_object(_numbers("mean", "low", "high")), {"type": "null"})
_RANKED = _object(
    {"name": _TEXT, "mean": _NUMBER, "scores": _by_name(_NUMBER), "by_rows": _DIFFERENCE, "by_tasks": _DIFFERENCE}
)
_RANKING = _object(
    {
        "suite": _TEXT,
        "tasks": _list(_TEXT),
        "resampled": _list(_TEXT),
        "left_out": _by_name(_TEXT),
        "runs": _list(_RANKED),
        "tied_by_rows": _ANYTHING,
        "tied_by_tasks": _ANYTHING,
    }
)
_COMPARISON = _object(
    {**_texts("task", "metric", "note"), **_numbers("a", "b"), "gain": _any_of(_GAIN, {"type": "null"})}
)

# train, multitask
_SPREAD = _any_of(_object(_numbers("mean", "sd")), {"type": "null"})
_TRAINED = {"recipe": _TEXT, "seeds": _LAYERS, "seconds": _SPREAD, "models": _list(_TEXT), "results": _ROWS}
_SCORES = {"scores": _by_name(_SPREAD), "averages": _by_name(_SPREAD)}

# recipes
_SUMMARY = _object(
    {**_texts("name", "about"), "encoder": _TEXT_OR_NONE, "reached": _TEXT_OR_NONE},
    maybe={"objectives": _list(_TEXT), "tasks": _list(_TEXT)},
)

_TASK = {**_texts("name", "suite", "kind", "metric"), "rows": _by_name(_COUNT)}
_SIDE = _object(
    {
        "text": _TEXT,
        "tokens": _list(_TEXT),
        "words": _list(_TEXT),
        "prompts": _list(_TEXT_OR_NONE),
        "word_of_token": _list({"type": "integer"}),
    }
)
_CHECK = _object(
    {**_texts("group", "name", "value", "remedy"), "state": {"enum": ["ok", "absent", "warning", "broken"]}}
    | {"bytes": {"type": ["integer", "null"]}}
)

_WRITTEN: dict[str, Schema] = {
    "info": _object(
        {
            **_texts("name", "architecture", "mix", "layers_read_by", "device", "dtype"),
            "mix_chosen": _TEXT_OR_NONE,
            "layers": _LAYERS,
            **_counts("depth", "width", "parameters", "vocabulary", "max_length", "embedding_width"),
            **_counts("blocks_kept", "blocks_of", "views_of_1000_sentences"),
            "normalized": _FLAG,
            "loads_in_sentence_transformers": _FLAG,
            "fitted_on": _list(_FITTED_ON),
            "training": {"type": "object"},
            "prompts": _by_name(_TEXT),
        }
    ),
    "embed": _any_of(
        _object(
            {"out": _TEXT, **_counts("rows", "resumed", "shards", "width", "tokens", "set_aside")}
            | _numbers("seconds", "tokens_per_second"),
            maybe=_numbers("cost_per_million_tokens"),
        ),
        _object(
            {"place": _TEXT, **_counts("rows", "shards", "sampled"), "lowest_cosine": _NUMBER}
            | {"faults": _list(_TEXT), "notes": _list(_TEXT)}
        ),
    ),
    "index build": _object(
        {**_texts("out", "kind"), **_counts("rows", "width", "effort", "queries", "bytes")}
        | _numbers("recall", "seconds")
    ),
    "index load": _object(
        {"table": _TEXT, **_counts("rows", "resumed", "width", "effort", "queries", "reconnected")}
        | _numbers("recall", "seconds")
    ),
    "query": _list(
        _object(
            {
                "query": _TEXT,
                "hits": _list(_object({"row": _COUNT, "score": _NUMBER, "columns": {"type": "object"}})),
            }
        )
    ),
    "dedup": _object(
        {**_texts("out", "kind"), **_counts("rows", "kept", "duplicates", "groups"), "threshold": _NUMBER}
    ),
    "cluster": _object(
        {
            "out": _TEXT,
            "rows": _COUNT,
            "clusters": _list(_object({**_counts("cluster", "size"), "nearest": _list({"type": "object"})})),
        }
    ),
    "evaluate": _object(
        {"format": _COUNT, "model": _TEXT, **_EVALUATED, "protocol": {"type": "object"}},
        maybe={"runs": _list(_object(_EVALUATED)), "matrix": _MATRIX},
    ),
    "compare": _object(
        {"rankings": _list(_RANKING), **_counts("resamples", "seed")},
        maybe={"a": _MODEL_AND_MIX, "b": _MODEL_AND_MIX, "tasks": _by_name(_COMPARISON)},
    ),
    "explain": _object(
        {
            **_texts("model", "mix", "note"),
            "views": _list(_TEXT),
            **_numbers("cosine", "total", "residual"),
            "left": _SIDE,
            "right": _SIDE,
            **dict.fromkeys(("by_word", "by_token", "by_view"), _list(_list(_NUMBER))),
        }
    ),
    "analyze": _object(
        {"measures": {"type": "object"}},
        maybe={
            **_texts("model", "mix"),
            "pairs": _TEXT,
            "demo": _FLAG,
            "left_out": _ANYTHING,
            "against": _TEXT_OR_NONE,
        },
    ),
    "report": _object({"report": _TEXT, "bytes": _COUNT, "seconds": _NUMBER, "answer": _list(_TEXT)}),
    "fit": _object({"saved": _TEXT, "fitted": _FITTED_ON, "width": _COUNT}),
    "train": _object({**_TRAINED, "dev": _SPREAD, **_SCORES}),
    "multitask": _object(
        {**_TRAINED, "baselines": {"type": "object"}},
        maybe={"dev": _by_name(_SPREAD), "test": _by_name(_SPREAD), **_SCORES},
    ),
    "predict": _object({"out": _TEXT, "rows": _COUNT, "counts": _by_name(_COUNT)}),
    "recipes": _any_of(_list(_SUMMARY), {"type": "object", "required": ["name"]}),
    "doctor": _object(
        {**_texts("version", "python", "platform"), "healthy": _FLAG, "checks": _list(_CHECK)},
    ),
    "cache": _object(
        {"folder": _TEXT, **_counts("bytes", "onnx_bytes", "results", "results_bytes")}
        | {"entries": _list({"type": "object", "required": ["name", "bytes"]})}
    ),
    "cache clear": _object({"freed_bytes": _COUNT}),
    "data list": _list(
        _object({**_TASK, **_texts("licence", "note", "where"), "path": _TEXT_OR_NONE, "source": _TEXT_OR_NONE})
    ),
    "data check": _list(
        _object(
            {**_texts("name", "why"), "rows": _by_name(_COUNT), "digest": _TEXT_OR_NONE, "path": _TEXT_OR_NONE}
            | {"state": {"enum": ["ok", "differs", "missing", "unreadable", "undeclared"]}}
        )
    ),
}


def _search() -> Schema:
    from layerwise.search import SelectionFacts  # takes seconds

    return SelectionFacts.model_json_schema(mode="serialization")


def _demo() -> Schema:
    from layerwise.evaluate import DemoFacts

    return DemoFacts.model_json_schema(mode="serialization")


_GENERATED: dict[str, Callable[[], Schema]] = {"search": _search, "demo": _demo}
COMMANDS = tuple(sorted((*_WRITTEN, *_GENERATED)))  # those with --json


def schema_of(command: str) -> Schema:
    """The whole schema of a command, such as "search" or "index build"."""
    schema = _GENERATED[command]() if command in _GENERATED else _WRITTEN[command]
    return {"$schema": DIALECT, **schema, "title": f"layerwise {command} --json"}
