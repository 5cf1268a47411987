"""The tables of docs/kinds.md: which layers win per kind of task, and what choosing layers is worth."""

import json
from math import hypot
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
KINDS = {  # suite -> how the page calls it
    "sts": "similarity",
    "relatedness": "relatedness",
    "pairs": "duplicates and paraphrases",
    "reranking": "reranking",
    "retrieval": "retrieval",
    "clustering": "clustering",
    "fewshot": "few-shot classes",
    "bitext": "translations",
}


def _models() -> dict[str, Any]:
    """All models, the tasks of each by kind and name."""
    models = json.loads((RESULTS / "kinds.json").read_text(encoding="utf-8"))["models"]
    return {name: model | {"tasks": by_kind(model["tasks"])} for name, model in models.items()}


def by_kind(tasks: dict[str, Any]) -> dict[str, Any]:
    """The rows of tasks in the order of `KINDS`, then of their names."""
    return dict(sorted(tasks.items(), key=lambda task: (list(KINDS).index(task[1]["suite"]), task[0])))


def _points(value: float) -> str:
    return f"{100 * value:.1f}"


def _gain(gain: dict[str, float]) -> str:
    return f"{100 * gain['mean']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"


def _sign(gain: dict[str, float]) -> str:
    return "helps" if gain["low"] > 0 else "hurts" if gain["high"] < 0 else "no clear difference"


def _scaled(scale: float) -> str:
    return "" if scale == 1 else f", {scale:g} times as many rows"


def _where(model: dict[str, Any]) -> str:
    device = model.get("machine", {}).get("device")
    return f"an {device} shared with other jobs" if device else "a shared machine with two cores"


def _set(layers: list[int]) -> str:
    return ",".join(map(str, layers))


def kinds_answer() -> str:
    """Three questions, each a table of kinds by models."""
    models = _models()
    depths = {name: len(model["tasks"]["stsb"]["layers"]) - 1 for name, model in models.items()}
    questions = {
        "Which layer is best? (one layer per task of the kind)": _best_layers,
        "Does the set selected on STS-B help? (gain over the last layer)": _sts_gains,
        "What does selecting on the task itself gain? (by the verdict)": _own_gains,
    }
    parts = []
    for question, cell in questions.items():
        heads = [f"{name}, {depths[name]} blocks" for name in models]
        lines = [f"| {question} | {' | '.join(heads)} |", "|---" * (len(models) + 1) + "|"]
        for suite, kind in KINDS.items():
            rows = [[row for row in model["tasks"].values() if row["suite"] == suite] for model in models.values()]
            names = [name for name, row in next(iter(models.values()))["tasks"].items() if row["suite"] == suite]
            lines.append(f"| {kind}: {', '.join(names)} | {' | '.join(map(cell, rows))} |")
        if cell is not _best_layers:
            others = [[row for row in model["tasks"].values() if row["suite"] != "sts"] for model in models.values()]
            key = "sts_gain" if cell is _sts_gains else "own_gain"
            means = [_mean(rows, key, verdict=cell is _own_gains) for rows in others]
            lines.append(f"| **the other kinds, mean of tasks [95 %]** | {' | '.join(means)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _best_layers(rows: list[dict[str, Any]]) -> str:
    last = len(rows[0]["layers"]) - 1
    best = [max(range(last + 1), key=row["layers"].__getitem__) for row in rows]
    return ", ".join("last" if layer == last else str(layer) for layer in best)


def _sts_gains(rows: list[dict[str, Any]]) -> str:
    marks = {"helps": " ▲", "hurts": " ▼"}
    return ", ".join(f"{100 * r['sts_gain']['mean']:+.1f}{marks.get(_sign(r['sts_gain']), '')}" for r in rows)


def _own_gains(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{100 * row['own_gain']['mean']:+.1f}" if row["reliable"] else "–" for row in rows)


def _mean(rows: list[dict[str, Any]], key: str, *, verdict: bool) -> str:
    """The mean of independent gains with its interval; with `verdict`, 0 where it keeps the last layer."""
    gains = [row[key] for row in rows if row["reliable"] or not verdict]
    centre = sum(gain["mean"] for gain in gains) / len(rows)
    below = hypot(*(gain["mean"] - gain["low"] for gain in gains)) / len(rows)
    above = hypot(*(gain["high"] - gain["mean"] for gain in gains)) / len(rows)
    return _gain({"mean": centre, "low": centre - below, "high": centre + above})


def kinds_layers() -> str:
    """Every single layer on every task."""
    tables = [_by_layer(name, model["tasks"], 100) for name, model in _models().items()]
    return "\n\n".join(tables) + "\n"


def kinds_whole() -> str:
    """Every single layer on whole tasks, as the command wrote them."""
    result = json.loads((RESULTS / "kinds-whole.json").read_text(encoding="utf-8"))
    tables = [_by_layer(name, model["tasks"], 1) for name, model in result["models"].items()]
    return "\n\n".join(tables) + f"\n\nWhole test splits, × 100: `{result['command']}` (`kinds-whole.json`).\n"


def _by_layer(name: str, tasks: dict[str, Any], scale: float) -> str:
    """Scores of single layers times the scale, the best of each task bold."""
    layers = len(next(iter(tasks.values()))["layers"])
    lines = [f"| {name} | " + " | ".join(map(str, range(layers))) + " |", "|---" * (layers + 1) + "|"]
    for task, row in tasks.items():
        top = max(row["layers"])
        cells = [f"**{scale * score:.1f}**" if score == top else f"{scale * score:.1f}" for score in row["layers"]]
        lines.append(f"| {task} ({row['metric']}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def kinds_gains() -> str:
    """The last layer, the set chosen on STS-B and the task's own on rows that did not choose."""
    parts = []
    for name, model in _models().items():
        lines = [
            f"| {name} | kind | select, test | last layer | gain of STS-B's set | | own set | its gain | use it? |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for task, row in model["tasks"].items():
            sizes = f"{row['choose']}, {row['report']} {row['unit']}"
            use = "yes" if row["reliable"] else "keep the last"
            cells = (task, row["kind"], sizes, _points(row["last"]), _gain(row["sts_gain"]), _sign(row["sts_gain"]))
            lines.append(f"| {' | '.join((*cells, _set(row['own_set']), _gain(row['own_gain']), use))} |")
        rows = model["tasks"].values()
        seconds = sum(row["seconds"] for row in ([row for row in rows if "device" not in row] or rows))
        parts.append("\n".join(lines) + f"\n\nTotal time: {seconds / 60:.0f} minutes on {_where(model)}.")
    return "\n\n".join(parts) + "\n"
