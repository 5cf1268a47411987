"""The tables on the verdict of a search and on views, from verdict.json and views-*.json of benchmarks/results."""

import json
from collections.abc import Sequence
from math import hypot, isnan, nan
from pathlib import Path
from statistics import mean, stdev

from layerwise.encoder import prompt_library
from layerwise.evidence import Gain

RESULTS = Path(__file__).parent / "results"
_SMOL_LIMITED = "views-few-SmolLM2-135M-Instruct"  # few pairs, and sets within some cost
_ELSEWHERE = (
    "views-elsewhere-all-MiniLM-L6-v2",
    "views-elsewhere-SmolLM2-135M-Instruct",
    "views-dev-wiki-mlm-12x384",
)
_BOTH = ("views-all-MiniLM-L6-v2", "views-dev-wiki-mlm-12x384")
_RULE, _RULE_OF_SMOL = "agreement", "views-rule-SmolLM2-135M-Instruct"
_NOTHING = 0.05  # points, less than which is no difference
_UNLABELLED = {
    **dict.fromkeys((*_BOTH, "views-all-mpnet-base-v2", "views-dev-SmolLM2-135M-Instruct"), ""),
    "views-dev-trained-mask": "wiki-mlm trained without labels",
    "views-dev-trained-nli": "wiki-mlm trained with NLI triples",
}
_SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
_FEW = ("views-all-MiniLM-L6-v2", _SMOL_LIMITED)
_CHOSEN = {
    "views-dev-SmolLM2-135M-Instruct": "SmolLM2-135M-Instruct",
    "views-forms-SmolLM2-135M-Instruct": "SmolLM2-135M-Instruct, negative views allowed",
    "views-dev-wiki-mlm-12x384": "wiki-mlm-12x384",
    "views-dev-trained-mask": "wiki-mlm-12x384, trained",
    "views-all-MiniLM-L6-v2": "all-MiniLM-L6-v2",
    "views-all-mpnet-base-v2": "all-mpnet-base-v2",
}
_DRAWN = {
    "stsb": "pairs of STS-B",
    "sick groups": "pairs of SICK, in groups that share sentences",
    "sst2": "rows of SST-2, nested folds, up to 2 of layers 4 to 6",
    "quora paraphrases": "queries: Quora's paraphrases among 1,500",
}
_MODELS = (
    "views-forms-SmolLM2-135M-Instruct",
    "views-wiki-mlm-12x384",
    "views-all-mpnet-base-v2",
    "views-all-MiniLM-L6-v2",
)
_SENTENCE_ENCODERS, _OF_ENCODERS = _MODELS[2:], {"as they are": "unmodified", "8, A": "less 8 components of text A"}
_LESS = {
    "as they are": "unmodified",
    "8, A": "less 8, text A",
    "all forms, A": "unmodified, less mean or less 8",
    "five forms, A": "unmodified, less mean, 2, 8 or 32",
    "all forms, choosing": "the same, fitted on the selection sentences",
    "all forms, A or choosing": "the same, fitted on the text with the better selection score",
}
_ONCE = ("last layer", "as they are", "mean, A", "8, A", "mean, B", "8, B")
_COLUMNS = ("as they are", "mean, A", "8, A", "mean, B", "8, B")


def verdict_table() -> str:
    """How honest the verdict is: by model and number of pairs, with one split and with five."""
    rows = json.loads((RESULTS / "verdict.json").read_text(encoding="utf-8"))["rows"]
    shown, tuning = ([row for row in rows if row["task"] == task] for task in ("stsb", "sickr"))
    lines = [
        "| model | pairs | splits | interval covers the truth, real and shuffled | recommended | false | missed | gain "
        "of what is used | gain of always taking the best found (worse than the last layer in) | "
        "recommended, shuffled |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for model, pairs, splits in dict.fromkeys((row["model"], row["pairs"], row["splits"]) for row in shown):
        real, shuffled = (
            next(row for row in shown if (row["model"], row["pairs"], row["splits"], row["shuffled"]) == key)
            for key in ((model, pairs, splits, False), (model, pairs, splits, True))
        )
        cells = [
            f"{real['coverage_of_others']:.1%}, {shuffled['coverage_of_others']:.1%}",
            f"{real['recommended']:.0%}",
            f"{real['false']:.1%}",
            f"{real['missed']:.0%}",
            f"{real['gain_used']:+.2f}",
            f"{real['gain_best_found']:+.2f} ({real['best_found_worse']:.0%})",
            f"{shuffled['recommended']:.1%}",
        ]
        lines.append(f"| {model} | {pairs:,} | {splits} | {' | '.join(cells)} |")
    covered = [row["coverage_of_others"] for row in shown]
    fewest, draws = round(min(row["others"] * row["draws"] for row in shown)), shown[0]["draws"]
    spreads = {
        spread: mean(row["coverage_of_spreads"][spread] for row in tuning)
        for spread in tuning[0]["coverage_of_spreads"]
    }
    return "\n".join(lines) + (
        f"\n\n{draws:,} draws of pairs from STS-B; the whole set ({shown[0]['population']:,} pairs) gives the true "
        "gain. Spearman × 100, all sets of layers, mean of the tokens (`benchmarks/verdict.py`, raw results: "
        "`verdict.json`). A draw that selects the last layer itself has a gain of exactly 0, so coverage is computed "
        f"on the others, {fewest:,} to {draws:,} of them: {min(covered):.1%} to {max(covered):.1%}, "
        f"{mean(covered):.1%} on average. False recommendations: at most {max(row['false'] for row in shown):.1%} in "
        "any row. Scores are shuffled once, so some sets are better by chance on the shuffled scores; only "
        "recommendations of sets that are not better count as false. The spread of the resamples of several splits "
        f"was selected on SICK-R with {tuning[0]['draws']} draws of each kind: there "
        f"{', '.join(f'× {spread} covers {share:.1%}' for spread, share in spreads.items())} "
        f"({sum(not row['jackknife'] for row in tuning)} of its {len(tuning)} rows were measured before resamples were "
        "scaled to the variance of the jackknife, which mainly narrows the intervals of few pairs).\n"
    )


def verdict_kinds_table() -> str:
    """How honest the verdict is for every kind of unit, with draws whose truth is the rest of a population."""
    rows = json.loads((RESULTS / "verdict.json").read_text(encoding="utf-8"))["kinds"]
    lines = [
        "| drawn from | metric | units drawn | splits | interval covers the truth | recommended | false | missed | "
        "gain of what is used | gain of always taking the best found (worse than the last layer in) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: list(_DRAWN).index(row["task"])):
        cells = [
            f"{row['coverage_of_others']:.1%}",
            f"{row['recommended']:.0%}",
            f"{row['false']:.1%}",
            f"{row['missed']:.0%}",
            f"{row['gain_used']:+.2f}",
            f"{row['gain_best_found']:+.2f} ({row['best_found_worse']:.0%})",
        ]
        about = [_DRAWN[row["task"]], row["metric"], str(row["size"]), str(row["splits"])]
        lines.append(f"| {' | '.join(about + cells)} |")
    covered, draws = [row["coverage_of_others"] for row in rows], rows[0]["draws"]
    return "\n".join(lines) + (
        f"\n\n{draws} draws for each row with all-MiniLM-L6-v2, × 100. The truth is the gain on all units that were "
        f"not drawn, of {min(row['population'] for row in rows):,} to {max(row['population'] for row in rows):,}; for "
        "classes that of regressions on the rows that select. Coverage is computed on the draws in which a split "
        f"selects something other than the last layer: {min(covered):.1%} to {max(covered):.1%}, {mean(covered):.1%} "
        "on average, where 200 draws would give 92% to 98% if the true coverage is 95%. The interval of one split of "
        "30 rows of classes is the least sure. Pairs of STS-B with one split were drawn before intervals "
        "of few units were widened to Student's t. False recommendations: at most "
        f"{max(row['false'] for row in rows):.1%} in any row. "
        "(`benchmarks/verdict.py`, raw results: `verdict.json`.)\n"
    )


def views_table() -> str:
    """What the views of a decoder are worth: average of the seven STS sets, by what the search may take."""
    result = json.loads((RESULTS / "views-SmolLM2-135M-Instruct.json").read_text(encoding="utf-8"))
    heads = ("unmodified", "less mean, text A", "less 8, text A", "less mean, text B", "less 8, text B")
    lines = [f"| views searched | {' | '.join(heads)} |", "|---|---|---|---|---|---|"]
    cells = next(iter(result["rows"].values()))["as they are"]
    last = [mean(split) for split in zip(*(cell["lasts"] for cell in cells.values()), strict=True)]
    lines.append(f"| last layer, mean of the tokens | {_with_sd(last)} | | | | |")
    for label, columns in result["rows"].items():
        lines.append(f"| {label} | {' | '.join(_average(columns.get(name)) for name in _COLUMNS)} |")
    chosen = [100 * mean(cell["test"] for cell in result["dev"][name].values()) for name in _COLUMNS]
    lines.append(
        "| all prompts, selected once on STS-B dev (with resamples: see below) | "
        f"{' | '.join(f'{c:.1f}' for c in chosen)} |"
    )
    whole = result["rows"]["all prompts"]["as they are"]
    gains = ", ".join(
        "{} {:+.1f} [{:+.1f}, {:+.1f}]".format(name, *(100 * cell["gain"][part] for part in ("mean", "low", "high")))
        for name, cell in whole.items()
    )
    left_out = sum(cell["left_out"] for cell in whole.values())
    reporting = sum(sum(cell["reporting"]) for cell in whole.values())
    apart = json.loads((RESULTS / "views-apart.json").read_text(encoding="utf-8"))
    copies = sum(of_set["near_copies"] for of_set in apart["sets"].values())
    shared = (
        f"{left_out:,} of {left_out + reporting:,} test pairs shared a sentence with a selection pair and were left "
        f"out; {copies:,} of the others have one that differs from a selection sentence in case, spaces or punctuation "
        "only (`views-apart.json`)."
    )
    return "\n".join(lines) + (
        f"\n\nSmolLM2-135M-Instruct, Spearman × 100, average of the seven STS sets. {result['pairs']} pairs of each "
        f"set select up to 8 views of length 1{_bags(result)}; the other pairs are for testing. Mean of "
        f"{result['splits']} splits ± the standard deviation of their averages. {shared} Text A: "
        "643 sentences of STS-B dev. Text B: 3,000 captions, questions, NLI and Wikipedia sentences. "
        f"{sum(apart['fitted_on'].values()):,} of these sentences are in the seven sets. Gain of all prompts, "
        f"unmodified, over the last layer, 95 %: {gains}. "
        "(`benchmarks/views.py` on an H200, raw results: `views-SmolLM2-135M-Instruct.json`.)\n"
    )


def models_table() -> str:
    """What views are worth with 30 resamples, set by set: the last layer and the best of what was measured."""
    lines = [f"| model, views | {' | '.join(_SETS)} | avg |", "|---|" + "---|" * (len(_SETS) + 1)]
    gains = []
    for file in _MODELS:
        result = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
        rows = _rows_of(result)
        gains.append(
            f"{result['model']} {_mean_of_sets([c['gain'] for c in rows['all prompts']['as they are'].values()])}"
        )
        for label in ("layers, mean of the tokens", "one prompt, one pass", "all prompts"):
            for column, less in _LESS.items():
                if cells := rows.get(label, {}).get(column):
                    lines.append(_by_set(f"{result['model']}, {label}, {less}", cells, _SETS, "test"))
        plain = rows["layers, mean of the tokens"]["as they are"]
        lines.append(_by_set(f"{result['model']}, last layer", plain, _SETS, "last"))
    return "\n".join(lines) + (
        "\n\nSpearman × 100. 350 pairs of each set select, the others are for testing; mean of 5 splits; views are "
        "weighted by 30 resamples of the selection pairs. If a row names several forms, a set may use a view in any "
        "of them. Means and components are fitted on text A unless another text is named. Test pairs that share a "
        "sentence with a selection pair are left out, so the scores of the last layer differ from those on other "
        "pages. Two decoder prompts (`essence`, `read-again`) are newer than the table above. Unmodified views of "
        "SmolLM2 may have negative weights, except in the older searches of layers by the mean of the tokens and of "
        "one pass in several forms (the latter used the best 8 prompts). The models below SmolLM2 were searched "
        "earlier still, with 24 poolings instead of 16 prompts and without negative weights, except the layers of "
        f"wiki-mlm and all-MiniLM-L6-v2; the latter's row of all prompts has 2 splits. Average gain of all "
        f"prompts, unmodified, over the last layer, 95 %: {', '.join(gains)}. {_smallest_gains()} "
        f"(`benchmarks/views.py`, {', '.join(f'`{file}.json`' for file in _MODELS)}.)\n"
    )


def _rows_of(result: dict) -> dict:
    """The rows of a model; without one of all prompts, the searches that compare numbers of pairs have it."""
    all_prompts = result.get("few", {}).get(str(result["pairs"]))
    return ({"all prompts": {"as they are": all_prompts}} if all_prompts else {}) | result["rows"]


def _smallest_gains() -> str:
    """On which set a sentence encoder's views gain least, as found and as the verdict uses them."""
    gains: dict[str, list[tuple]] = {column: [] for column in _OF_ENCODERS}
    for file in _SENTENCE_ENCODERS:
        result = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
        for label, columns in _rows_of(result).items():
            for column, cells in columns.items():
                for name, cell in cells.items():
                    used = cell.get("used", nan) - cell["last"]
                    gains[column].append(
                        (100 * (cell["test"] - cell["last"]), 100 * used, result["model"], label, name)
                    )
    parts = []
    for column, forms in _OF_ENCODERS.items():
        least, _, model, label, name = min(gains[column])
        used = min(used for _, used, *_ in gains[column] if not isnan(used))
        parts.append(
            f"{forms} by {least:+.1f} at worst ({model}, {label}, {name}), and by {used:+.1f} if the verdict decides"
        )
    return (
        f"On single sets, the two sentence encoders' views differ from the last layer, {'; '.join(parts)} (which was "
        "recorded for layers and for all prompts)."
    )


def prompts_list() -> str:
    """The prompts that ship, by the models that they are for."""
    lines = ["| name | prompt | for |", "|---|---|---|"]
    for name, prompt in prompt_library().items():
        kind = "masked models" if prompt.has_mask else "chat models" if prompt.is_chat else "decoders"
        text = prompt.template.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{name}` | `{text}` | {kind} |")
    return "\n".join(lines) + "\n"


def chosen_once_table() -> str:
    """What views are worth that the pairs of STS-B dev chose, once for all seven sets."""
    heads = ("last layer", "unmodified", "less mean, A", "less 8, A", "less mean, B", "less 8, B")
    lines = [f"| model | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for file, name in _CHOSEN.items():
        chosen = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))["dev"]
        scores = [_points(chosen[column]) if column in chosen else "" for column in _ONCE]
        lines.append(f"| {name} | {' | '.join(scores)} |")
    return "\n".join(lines) + (
        "\n\nSpearman × 100, average of the seven STS sets, all their pairs. The 306 pairs of STS-B dev that share no "
        "sentence with these sets select once among all prompts and poolings. One run each: only the 30 resamples of "
        "those pairs are random. Negative weights were allowed in the second row only. The trained model is the row "
        "*mask of a prompt, SimCSE* of [train](../train.md#from-the-mask-of-a-prompt), seed 0. "
        f"(`benchmarks/views.py` on an H200, raw results: {', '.join(f'`{file}.json`' for file in _CHOSEN)}.)\n"
    )


def few_pairs_table() -> str:
    """What few pairs can choose."""
    lines = ["| model | selection pairs | last layer | best found | gain [95 %] | by the verdict | keeps the last |"]
    lines.append("|---|---|---|---|---|---|---|")
    for file in _FEW:
        result = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
        for pairs, cells in result["few"].items():
            last, best = (100 * mean(cell[key] for cell in cells.values()) for key in ("last", "test"))
            sure = {name: Gain(**cell["gain"]).is_sure and cell["gain"]["low"] > 0 for name, cell in cells.items()}
            used = 100 * mean(cell["test" if sure[name] else "last"] for name, cell in cells.items())
            kept = f"{len(cells) - sum(sure.values())} of {len(cells)} sets"
            gain = _mean_of_sets([cell["gain"] for cell in cells.values()])
            lines.append(f"| {result['model']} | {pairs} | {last:.1f} | {best:.1f} | {gain} | {used:.1f} | {kept} |")
    return "\n".join(lines) + (
        "\n\nSpearman × 100 on the test pairs, 2 splits, averaged over the seven STS sets, whose intervals are "
        "treated as independent (MiniLM's were computed by an earlier rule and are slightly too wide). All prompts "
        "and poolings, unmodified; MiniLM's without negative weights, which were not allowed then. "
        f"({', '.join(f'`{file}.json`' for file in _FEW)}.)\n"
    )


def _mean_of_sets(gains: list[dict[str, float]]) -> str:
    """The mean of independent gains with its interval."""
    centre = mean(gain["mean"] for gain in gains)
    below = hypot(*(gain["mean"] - gain["low"] for gain in gains)) / len(gains)
    above = hypot(*(gain["high"] - gain["mean"] for gain in gains)) / len(gains)
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * value for value in (centre, centre - below, centre + above)))


def cost_table() -> str:
    """The best set of views for so much work."""
    result, limited = (
        json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8")) for file in (_MODELS[0], _SMOL_LIMITED)
    )
    lines = [
        f"| blocks run per sentence, of 30 | {' | '.join(_SETS)} | average |",
        "|" + "---|" * (len(_SETS) + 2),
    ]
    whole = result["rows"]["all prompts"]["as they are"]
    rows = {"30: the last layer": ("last", whole)}
    rows |= {label.replace(" of one pass", ", one pass"): ("test", cells) for label, cells in limited["cost"].items()}
    rows |= {"any, all prompts": ("test", whole)}
    for label, (key, cells) in rows.items():
        scores = [100 * cells[name][key] for name in _SETS]
        lines.append(f"| {label} | {' | '.join(f'{score:.1f}' for score in (*scores, mean(scores)))} |")
    return "\n".join(lines) + (
        "\n\nSmolLM2-135M-Instruct, Spearman × 100; 350 pairs select, the others are for testing; 2 splits (5 in the "
        f"first and last rows). (`benchmarks/views.py`, `{_MODELS[0]}.json`, `{_SMOL_LIMITED}.json`.)\n"
    )


def class_poolings_table() -> str:
    """Token poolings for classes."""
    result = json.loads((RESULTS / "class_poolings.json").read_text(encoding="utf-8"))
    lines = ["| model, task | last layer | layers, mean pooling | layers and poolings | selected | gain [95 %] |"]
    lines.append("|---|---|---|---|---|---|")
    for model, tasks in result["models"].items():
        for task, found in tasks.items():
            mean_only, every = found["mean"], found["every pooling"]
            gain = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*every["gain"])
            scores = " | ".join(f"{score:.1f}" for score in (every["last"], mean_only["test"], every["test"]))
            lines.append(f"| {model}, {task} | {scores} | {every['mix']} | {gain} |")
    rows = sorted({found["rows"] for tasks in result["models"].values() for found in tasks.values()})
    return "\n".join(lines) + (
        f"\n\nTest accuracy × 100 of a logistic regression; sets of one or two layers, at most "
        f"{' or '.join(f'{count:,}' for count in rows)} train rows. The gain is over the last layer with mean pooling. "
        f"(`benchmarks/class_poolings.py`, `class_poolings.json`.)\n"
    )


def elsewhere_table() -> str:
    """Views that one task chose, on others."""
    heads = {"sts": "seven STS sets", "quora": "Quora duplicates, AP", "quora_retrieval": "Quora, NDCG@10"}
    heads |= {"trec": "TREC", "mrpc": "MRPC", "sst2_sentences": "SST-2", "cr": "CR"}
    lines = [f"| views | {' | '.join(heads.values())} |", "|---|" + "---|" * len(heads)]
    for file in _ELSEWHERE:
        result = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
        for label, cell in result["elsewhere"].items():
            scores = " | ".join(f"{100 * cell[name]:.1f}" if name in cell else "" for name in heads)
            lines.append(f"| {result['model']}, {_selected(label)} | {scores} |")
    return "\n".join(lines) + (
        "\n\nTransfer tasks: accuracy of a logistic regression by SentEval's protocol, one run; each selects one or "
        "two views of all prompts and poolings on 1,000 of its train rows. Quora: dev pairs that share no sentence "
        "with the 350 selection pairs; retrieval finds the duplicates of a question among all questions of these "
        f"pairs. ({', '.join(f'`{file}.json`' for file in _ELSEWHERE)}; MRPC and SST-2 selected for the "
        "first model alone; wiki-mlm's were selected before negative weights were allowed.)\n"
    )


def _selected(label: str) -> str:
    """What selected the views of a row, and what was removed from them."""
    for old, new in (
        ("chosen", "selected"),
        ("sst2_sentences", "SST-2"),
        ("trec", "TREC"),
        ("mrpc", "MRPC"),
        ("Quora's duplicates", "Quora duplicates"),
        ("as they are", "unmodified"),
        ("mean, A", "less mean, A"),
        ("8, A", "less 8, A"),
    ):
        label = label.replace(old, new)
    return label


def unlabelled_views_table() -> str:
    """Views that text alone chose."""
    results = [json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8")) for file in _UNLABELLED]
    heads = [label or result["model"] for label, result in zip(_UNLABELLED.values(), results, strict=True)]
    scores = [{name: 100 * cell["sts"] for name, cell in result["unlabelled"].items()} for result in results]
    by_rule = json.loads((RESULTS / f"{_RULE_OF_SMOL}.json").read_text(encoding="utf-8"))
    scores[heads.index(by_rule["model"])][_RULE] = 100 * mean(
        cell["test"] for cell in by_rule["given"]["given"].values()
    )
    names = [name for name in scores[0] if name != _RULE]
    lines = [f"| selected by | {' | '.join(heads)} |", "|---|" + "---|" * len(results)]
    for name in (*names, _RULE):
        label = "the three criteria agree, views or the last layer (`--no-labels all`)" if name == _RULE else name
        lines.append(f"| {label} | {' | '.join(f'{found[name]:.1f}' if name in found else '' for found in scores)} |")
    labelled = [_points(result["dev"]["as they are"]) for result in results]
    lines.append(f"| 306 scored pairs of STS-B dev, views | {' | '.join(labelled)} |")
    gains = [found[name] - found["last layer"] for found in scores for name in names if "," in name and name in found]
    worse = [gain for gain in gains if gain < -_NOTHING]
    rule = [found[_RULE] - found["last layer"] for found in scores if _RULE in found]
    return "\n".join(lines) + (
        "\n\nSpearman × 100, average of the seven STS sets. *Layers* selects from the layers of the model's own "
        "pooling, *views* from all prompts and poolings, unmodified. Repetition, deletion and dropout use 600 "
        "captions, questions, NLI and Wikipedia sentences; neighbours uses 601 sentences of news articles (1,000 for "
        "the views of SmolLM2), and so does the rule; none of them is in the seven sets. SmolLM2 has no dropout. Of "
        f"the {len(gains)} selections by one criterion, {sum(gain > _NOTHING for gain in gains)} are better than the "
        f"last layer and {len(worse)} are worse, by {-min(worse):.1f} at most. {_rule_alone(rule)} The model trained "
        "without labels was retrained after the selection on scored pairs (same seed, 0.1 apart); SmolLM2's views by "
        "neighbours predate the prompts `essence` and `read-again`. "
        f"({', '.join(f'`{file}.json`' for file in _UNLABELLED)}.)\n"
    )


def _rule_alone(gains: list[float]) -> str:
    """What the rule of all criteria did."""
    kept = sum(abs(gain) <= _NOTHING for gain in gains)
    chose = " and ".join(f"{gain:+.1f}" for gain in gains if abs(gain) > _NOTHING)
    return (
        f"The rule of `--no-labels all` keeps the last layer of {kept} models and selects a set for the others "
        f"({chose} points; SmolLM2's in `{_RULE_OF_SMOL}.json`)."
    )


def _points(cells: dict) -> str:
    return f"{100 * mean(cell['test'] for cell in cells.values()):.1f}"


def _by_set(label: str, cells: dict, sets: Sequence[str], key: str) -> str:
    """A line of a table by set; the average only where all sets are there."""
    scores = [f"{100 * cells[name][key]:.1f}" if name in cells else "" for name in sets]
    average = f"{100 * mean(cells[name][key] for name in sets):.1f}" if all(scores) else ""
    return f"| {label} | {' | '.join([*scores, average])} |"


def _bags(result: dict) -> str:
    return f", weighted by {result['bags']} resamples" if result["bags"] else " (`bags=0`: each counts once)"


def _average(cells: dict | None) -> str:
    """The mean over the sets, with the standard deviation over the splits of their averages."""
    if not cells:
        return ""
    return _with_sd([mean(split) for split in zip(*(cell["tests"] for cell in cells.values()), strict=True)])


def _with_sd(averages: list[float]) -> str:
    return f"{100 * mean(averages):.1f} ± {100 * stdev(averages):.1f}"
