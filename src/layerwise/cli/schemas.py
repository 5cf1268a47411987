"""The JSON schema of every command's `--json` (draft 2020-12). Tests validate the output of real commands by them.

An object has exactly the fields written here, so that a field cannot appear, vanish or change its type unnoticed;
those after `maybe` are optional. Numbers that do not exist, such as a correlation of constants, are null.
"""

from collections.abc import Mapping
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
_WARNINGS = _list(_TEXT)
_SECONDS = _by_name(_NUMBER)
_PROMPTS = _list(_TEXT_OR_NONE)
_FITTED_ON = _object({**_texts("what", "source"), **_counts("sentences", "different"), "digest": _TEXT_OR_NONE})

# search
_VERDICT = _object({**_texts("use", "text"), "keep_last_layer": _FLAG, "reliable_gain": _FLAG})
_CHOICE_FIELDS = {"layers": _LAYERS, "pooling": _TEXT, "mix": _TEXT, **_numbers("dev", "test")}
_CHOICE = _object(_CHOICE_FIELDS)
_COST = _object({**_counts("forward_passes", "blocks"), **_numbers("tokens", "passes", "work")})
_COSTED = _object({**_CHOICE_FIELDS, "cost": _COST})
_GAIN = _object(_numbers("mean", "low", "high", "p_value"))
_SAVED = {"saved": _TEXT_OR_NONE}
_CHOSEN = {"verdict": _VERDICT, "best": _CHOICE, "last": _CHOICE, "seconds": _SECONDS, "prompts": _PROMPTS}
_RUN = {"subsets": _COUNT, **_SAVED}
_SPLITS = _list({"type": "object"})
_LAYER_SEARCH = {
    **_CHOSEN,
    **_RUN,
    "gain": _GAIN,
    "front": _list(_CHOICE),
    "cheaper": _any_of(_object({"mix": _TEXT, "blocks": _COUNT, "against": _GAIN}), {"type": "null"}),
    "stability": _object({"layers": _by_name(_NUMBER), "poolings": _by_name(_NUMBER), "agreement": _NUMBER}),
    "unlabelled": _any_of(_CHOICE, _object({"note": _TEXT_OR_NONE})),
    "protocol": _object(
        {**_texts("metric", "space", "unit"), **_counts("dev_pairs", "test_pairs", "splits"), "seed": _COUNT}
    ),
    "head": _FLAG,
    "splits": _SPLITS,
    "warnings": _WARNINGS,
}
_SEPARATED = _object({"layers": _LAYERS, **_texts("pooling", "mix"), "separation": _NUMBER})
_WITHOUT_LABELS = {
    **_RUN,
    "best": _SEPARATED,
    "last": _SEPARATED,
    "seconds": _SECONDS,
    "prompts": _PROMPTS,
    "head": _FLAG,
    "warnings": _WARNINGS,
}
_CLASSES = {
    **_CHOSEN,
    **_RUN,
    "gain": _object(_numbers("mean", "sd", "low", "high")),
    "protocol": _object({"metric": _TEXT, **_counts("splits", "inner", "seed")}),
    "splits": _SPLITS,
}
_JOINT = {
    **_CHOSEN,
    **_RUN,
    "gain": _GAIN,
    "tasks": _list(_object({**_texts("task", "metric", "unit"), "weight": _NUMBER, **_counts("choose", "report")})),
    "choices": _by_name(
        _object(
            {
                "layers": _LAYERS,
                **_texts("mix", "pooling"),
                "unseen": _list(_NUMBER),
                "regrets": _list(_NUMBER),
                **_numbers("mean", "mean_regret"),
            }
        )
    ),
    "protocol": _object({"space": _TEXT, **_counts("splits", "seed")}),
    "warnings": _WARNINGS,
}
_VIEWS = {
    **_CHOSEN,
    **_SAVED,
    "best": _object({**_CHOICE_FIELDS, "cost": _COST, "fitted_on": _TEXT_OR_NONE}),
    "gain": _GAIN,
    "views": _COUNT,
    "singles": _by_name(_list(_NUMBER)),
    "kept": _ANYTHING,
    "front": _list(_COSTED),
    "stability": _object({"views": _by_name(_NUMBER), "poolings": _by_name(_NUMBER), "agreement": _NUMBER}),
    "protocol": {"type": "object"},
    "splits": _SPLITS,
    "warnings": _WARNINGS,
}
_SEPARATIONS = {"mix": _TEXT, "separation": _by_name(_NUMBER)}
_VIEWS_OF_TEXT = {
    **_SAVED,
    "use": _TEXT,
    "agreed": _TEXT_OR_NONE,
    "proposals": _list(_object({**_SEPARATIONS, "criterion": _TEXT, "agreed": _FLAG})),
    "last": _object(_SEPARATIONS),
    "seconds": _SECONDS,
    "prompts": _PROMPTS,
    "warnings": _WARNINGS,
}

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
_TRAINED = {"recipe": _TEXT, "seeds": _LAYERS, "seconds": _SPREAD, "models": _list(_TEXT), "results": _SPLITS}
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

SCHEMAS: dict[str, Schema] = {
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
    "search": _any_of(
        *map(_object, (_LAYER_SEARCH, _WITHOUT_LABELS, _CLASSES, _JOINT, _VIEWS, _VIEWS_OF_TEXT)),
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
    "demo": _object(
        {
            **_LAYER_SEARCH,
            "encoder": _TEXT,
            "scores": _list({"type": "object"}),
            "saved": _TEXT,
            "report": _TEXT_OR_NONE,
            "answers": _by_name(_list(_object({"text": _TEXT, "score": _NUMBER}))),
            "decoder": {"type": "object"},
        }
    ),
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


def schema_of(command: str) -> Schema:
    """The whole schema of a command, such as "search" or "index build"."""
    return {"$schema": DIALECT, "title": f"layerwise {command} --json", **SCHEMAS[command]}
