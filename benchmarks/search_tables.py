"""The tables on the verdict of a search, from benchmarks/results/verdict.json."""

import json
from pathlib import Path
from statistics import mean

RESULTS = Path(__file__).parent / "results"


def verdict_table() -> str:
    """How honest the verdict is: by model and number of pairs, mean of the two populations."""
    result = json.loads((RESULTS / "verdict.json").read_text(encoding="utf-8"))
    rows = [row for row in result["rows"] if row["splits"] == 1]
    lines = [
        "| model | pairs | interval covers, real and shuffled | recommended | false | missed | gain of what is used | "
        "gain of always taking the best found (worse than the last layer in) | recommended, shuffled |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        for pairs in sorted({row["pairs"] for row in rows}):
            real, shuffled = (
                [row for row in rows if (row["model"], row["pairs"], row["shuffled"]) == (model, pairs, kind)]
                for kind in (False, True)
            )
            cells = [
                f"{_percent(real, 'coverage')}, {_percent(shuffled, 'coverage')}",
                _percent(real, "recommended"),
                _percent(real, "false"),
                _percent(real, "missed"),
                f"{_mean(real, 'gain_used'):+.2f}",
                f"{_mean(real, 'gain_best_found'):+.2f} ({_percent(real, 'best_found_worse')})",
                _percent(shuffled, "recommended"),
            ]
            lines.append(f"| {model} | {pairs:,} | {' | '.join(cells)} |")
    several = [row["coverage"] for row in result["rows"] if row["splits"] > 1]
    false = max(row["false"] for row in result["rows"])
    low, high = min(row["coverage"] for row in rows), max(row["coverage"] for row in rows)
    return "\n".join(lines) + (
        f"\n\n{result['draws']} draws each of STS-B ({_size(rows, 'stsb')} pairs) and of SICK-R "
        f"({_size(rows, 'sickr')}), whose whole says what is true; means of the two; Spearman × 100, all sets of "
        f"layers, mean of the tokens (`benchmarks/verdict.py`, raw results: `verdict.json`). The interval covers the "
        f"truth in {low:.1%} to {high:.1%} of the draws of a row; above 97.5 % mostly where draws choose the last "
        f"layer itself, whose gain is 0 for certain. With `--splits 5` it covers {min(several):.1%} to "
        f"{max(several):.1%}. False recommendations: at most {false:.1%} in any row.\n"
    )


def _mean(rows: list[dict], key: str) -> float:
    return mean(row[key] for row in rows)


def _percent(rows: list[dict], key: str) -> str:
    return f"{100 * _mean(rows, key):.0f} %"


def _size(rows: list[dict], task: str) -> str:
    return f"{next(row['population'] for row in rows if row['task'] == task):,}"
