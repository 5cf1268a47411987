"""The tables about evaluation, from raw results; `tables.py` writes them."""

import json
from pathlib import Path
from statistics import mean

RESULTS = Path(__file__).parent / "results"
SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "sst5", "trec", "mrpc")


def read(name: str) -> dict:
    """A raw result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def quality_table() -> str:
    """Encoders by ways to embed without training."""
    found = read("quality")
    rows = []
    for encoder, known in found["encoders"].items():
        for way, sets in known["rows"].items():
            scores = [sets[name]["score"] for name in SETS]
            best = way == "layer combination"
            cells = [f"{score:.2f}" for score in (*scores, mean(scores))]
            rows.append([f"{encoder}, {'**' if best else ''}{way}{'**' if best else ''}", *cells])
    protocol = found["protocol"]
    first = next(iter(found["encoders"].values()))["rows"]["whitening, fitted on STS-B train"]
    seen = ", ".join(f"{first[name]['saw_test_text']:.0%}" for name in SETS)
    note = (
        f"Spearman × 100, SentEval's form, {protocol['aggregation']!r} aggregation, each set's test split, mean "
        "pooling, without training (`make bench-quality`; every score with its stamp in "
        f"`benchmarks/results/quality.json`). Layer combination: {protocol['dev_pairs']} pairs select, the others are "
        f"for testing, mean of {protocol['splits']} splits. Whitening of the last layer's mean is fitted on the "
        f"sentences of STS-B train, which contain {seen} of the sets' test sentences, or on each set's own test "
        "sentences, as in its paper; on other text it gains less "
        "([evaluate](../evaluate.md#baselines-that-are-fitted-on-text))."
    )
    return table(["encoder", "12", "13", "14", "15", "16", "B", "SICK-R", "avg"], rows) + f"\n{note}\n"


def senteval_table() -> str:
    """The batched regressions against scikit-learn's loop."""
    found = read("senteval_speed")
    rows = [
        [
            name.upper(),
            f"{one['regressions']:,}",
            f"{one['ours']['seconds']:.1f} s",
            f"{one['scikit-learn']['seconds']:,.0f} s",
            f"{one['ratio']:,.0f}×",
            f"{one['scikit-learn']['points_apart']:+.2f}",
            f"{one['scikit-learn']['points_apart_at_the_optimum']:+.2f}",
        ]
        for name, one in found["tasks"].items()
    ]
    total = found["total"]
    seconds = total["seconds"]
    ours, theirs = f"{seconds['ours']:.1f} s", f"{seconds['scikit-learn']:,.0f} s"
    count = f"{sum(one['regressions'] for one in found['tasks'].values()):,}"
    rows.append(["all eight", count, ours, theirs, f"{total['ratio']:,.0f}×", "", ""])
    head = ["task", "regressions", "ours", "scikit-learn", "speedup", "difference in points", "at the optimum"]
    note = (
        "Fixed embeddings (all-MiniLM-L6-v2, last layer), two cores and two threads for both (Xeon), one run. "
        "scikit-learn: a plain loop of `LogisticRegression(C=c, max_iter=1000)` with its default tolerance. For tasks "
        "without splits it ran only the first of ten test folds (61 regressions): its time is extrapolated, and "
        "accuracies are compared on that fold. At the optimum: difference from scikit-learn's Newton solver in float64 "
        "with the same C, on that fold; the default solver stops slightly earlier."
    )
    return table(head, rows) + f"\n{note}\n"


def suites_table() -> str:
    """Transfer and probing by encoder."""
    results = read("suites")["results"]
    parts = []
    probing = [name for name, one in next(iter(results.values()))["senteval"].items() if one["metric"] == "accuracy"]
    for names in (TRANSFER, [name for name in probing if name not in TRANSFER]):
        rows = []
        for encoder, protocols in results.items():
            known = protocols["senteval"]
            scores = [known[name]["figures"]["accuracy"] for name in names]
            rows.append([encoder, *(f"{score:.2f}" for score in scores), f"{mean(scores):.2f}"])
        parts.append(table(["accuracy", *(name.replace("_", " ") for name in names), "avg"], rows))
    deviations = [one["sd"]["accuracy"] for p in results.values() for one in p["senteval"].values() if one["sd"]]
    note = (
        "Mean of the last layer, SentEval's protocol with logistic regression, mean of three seeds of the folds "
        f"(standard deviation at most {max(deviations):.2f}; with dev rows nothing is random). Probing: nine of "
        "SentEval's ten tasks in X-Probe's English form with 10,000 training rows (sentence length 4,998, tree depth "
        "5,000, the halves of one file) and no dev rows, so folds select. The labels of odd man out look unreliable."
    )
    return "\n".join(parts) + f"\n{note}\n"


def baselines_table() -> str:
    """Whitening, flow, removed components, WK."""
    found = read("baselines")
    words = {"nothing is fitted": "nothing", "saw test text": "the set's own test sentences"}
    rows, flows = [], []
    for one in sorted(found["rows"], key=lambda one: ("other" in one["protocol"], "saw" in one["protocol"])):
        scores = [one["scores"][name] for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick")]
        average = f"{one['average']:.2f}" + (f" ± {one['average_sd']:.2f}" if one.get("average_sd") else "")
        kind, _, other = one["protocol"].partition(": ")
        rows.append([one["method"], words.get(kind, other), *(f"{score:.2f}" for score in scores), average])
        flows += [one] if one["method"].startswith("flow") else []
    slowest = max(flows, key=lambda one: one["fit_seconds"])
    note = (
        "wiki-mlm-12x384, Spearman × 100, 'all', test splits. Methods fitted on a set's own test sentences have seen "
        "test text, as in the papers of whitening and flow; fitted on other text they gain less, on Wikipedia least. "
        f"Flows: mean ± standard deviation of three seeds; fitting took up to {slowest['fit_seconds']:.0f} s on "
        "average (two cores shared with other jobs). SBERT-WK follows its authors' formula (a test compares it with "
        "an explicit decomposition) and does not help this encoder."
    )
    head = ["method", "fitted on", "12", "13", "14", "15", "16", "B", "SICK-R", "avg"]
    return table(head, rows) + f"\n{note}\n"


def retrieval_table() -> str:
    """Search among Quora's questions."""
    found = read("retrieval")
    rows = []
    for encoder, one in found["encoders"].items():
        indexes = {"exact": one["exact"]} | {f"IVF, nprobe {probes}": ivf for probes, ivf in one["ivf"].items()}
        for index, x in indexes.items():
            quality = [f"{x[name]:.2f}" for name in ("mrr@10", "recall@10", "ndcg@10")]
            rows.append([f"{encoder} ({one['mix']})", index, *quality, f"{x['ms']:.2f}", f"{x['mb'] / 1000:.3f}"])
    counts = one["counts"]
    note = (
        f"{counts['queries']:,} questions that have a duplicate are queries among {counts['corpus']:,}; FAISS, nlist "
        f"{counts['lists']:,}; median time of one query on one thread; size of the index. LayerAttPooler's table 3 "
        "reports MRR@10 63.48 → 64.32, 1.45 ms and 0.25 GB for BERT-base on all of Quora's pairs (published; other "
        "questions, another machine). all-MiniLM-L6-v2 was trained on Quora duplicates, so this is not zero-shot."
    )
    head = ["encoder", "index", "MRR@10", "recall@10", "NDCG@10", "ms", "GB"]
    return table(head, rows) + f"\n{note}\n"


def report_table() -> str:
    """What a report costs."""
    lines = [
        [name, str(one["layers"]), f"{one['seconds']:.0f} s", f"{one['ratio']:.1f}×", f"{one['first_seconds']:.0f} s",
         f"{one['html_bytes'] / 1e6:.1f} MB"]
        for name, one in read("report")["encoders"].items()
    ]  # fmt: skip
    one = next(iter(read("report")["encoders"].values()))
    note = (
        f"{one['pairs']:,} pairs of STS-B test ({one['sentences']:,} sentences), two cores, median of {one['repeats']} "
        f"runs (`benchmarks/report.py`)."
    )
    head = ["", "layers", "report, views cached", "relative to one encoding pass", "first report", "HTML"]
    return table(head, lines) + f"\n{note}\n"
