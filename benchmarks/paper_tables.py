"""Each table of the five papers: what it published, our command, our figure. `tables.py` writes them.

Published figures are cited as printed, of the papers' own models; ours come from benchmarks/results alone, and what was
not measured says so. Ours are of other encoders (wiki-mlm-12x384 stands where the papers use raw BERT), so a row
compares what a method changes, not two absolute figures.
"""

from statistics import mean, stdev
from typing import Any

from evaluation_tables import SETS, read, table
from training_views_rows import TEMPERATURES, WIDTHS

HEAD = ["", "published", "command", "ours"]
NONE = "not measured"
WIKI, MINI, MPNET = "wiki-mlm-12x384", "all-MiniLM-L6-v2", "all-mpnet-base-v2"
TRAINING = "`python benchmarks/training.py {}`"
MULTITASK = "`python benchmarks/multitask.py {}`"
ABLATIONS = "`python benchmarks/ablations.py`"
ABLATED = {"stsb": "STS-B", "sts16": "STS16", "sick": "SICK"}
NO_MODEL = "not drawn: the raw results have no trained model"
SWEEPS = "`python benchmarks/training_views.py run FOLDER --rows sweeps`"


def bert_lc_table() -> str:
    """BERT-LC's tables and figures."""
    sets, sizes = read("lc_sts")["encoders"], read("transfer_sizes")["results"]
    transfer, methods = read("transfer_search")["results"], read("search_methods")
    last, best = (100 * mean(row[key] for row in transfer.values()) for key in ("last_mean", "mean"))
    trec = list(sizes["trec"]["sizes"].values())
    lc = "`python benchmarks/lc.py`"
    rows = [
        [
            "table 1: transfer, accuracy, last layer → combination",
            "BERT-base 80.57 → 82.25 (eight tasks)",
            "`python benchmarks/transfer.py --part search`",
            f"{WIKI} {last:.2f} → {best:.2f} ({', '.join(map(str.upper, transfer))}; sets of up to 4)",
        ],
        [
            "table 2: STS, average of seven, last layer → combination",
            "BERT-base uncased 52.20 → 61.95",
            lc,
            f"{WIKI} {_lc(sets[WIKI], 'last')} → {_lc(sets[WIKI], 'lc')}",
        ],
        [
            "the same, of a sentence encoder",
            "SBERT-base 74.76 → 77.11; SRoBERTa-base 73.99 → 76.75",
            lc,
            "; ".join(f"{name} {_lc(sets[name], 'last')} → {_lc(sets[name], 'lc')}" for name in (MINI, MPNET)),
        ],
        ["table 3: STS, last 4 layers", "BERT-base uncased 53.85", lc, f"{WIKI} {_fixed(sets[WIKI], 'last-4')}"],
        [
            "table 3: STS-B, STS16, SICK: last layer; random layers; combination",
            "BERT-base cased 55.86, 63.86, 58.92; 57.89, 65.62, 60.34; 62.98, 67.90, 61.57",
            ABLATIONS,
            f"{WIKI} {_ablated(WIKI)}",
        ],
        [
            "the same, of a sentence encoder",
            "SRoBERTa-base 76.65, 74.17, 74.31; 67.33, 65.09, 75.33; 78.99, 77.13, 76.90",
            ABLATIONS,
            f"{MINI} {_ablated(MINI)}",
        ],
        [
            "table 4: transfer, last layer; last 4; random layers",
            "BERT-base uncased 80.64; 81.59; 80.44 (eight tasks)",
            "`python benchmarks/transfer.py --part search`",
            _fixed_transfer(transfer),
        ],
        [
            "figure 1: transfer with 1/256 of the training rows",
            "curves",
            "`python benchmarks/transfer.py --part sizes`",
            f"TREC, {WIKI}: {_pair(trec[0])} with all, {_pair(trec[-1])} with 1/256",
        ],
        [
            "figures 2 and 3: the best N on STS-B, STS16, SICK",
            "at most 6 of 13 layers, for four models",
            ABLATIONS,
            "; ".join(f"{name} {_best_sizes(name)}" for name in (WIKI, MINI)),
        ],
        [
            "figure 4: the largest loss without a layer",
            "0.97 points (SBERT-base, STS16, layer 12)",
            ABLATIONS,
            "; ".join(f"{name} {_largest_loss(name)}" for name in (WIKI, MINI)),
        ],
        [
            "appendix A: time of the search, 8,191 sets, 1,000 pairs",
            "Method 2 1,067 s, the best 5.65 s: 189×",
            "`python benchmarks/search.py --part methods`",
            f"Method 2 {methods['medians']['method 2']:.0f} s, ours {methods['medians']['ours']:.2f} s: "
            f"{methods['ratios_to_ours']['method 2']:.0f}×, on one machine (Method 3: "
            f"{methods['fastest']['method 3']:.0f}×)",
        ],
    ]
    return table(HEAD, rows)


def sg_bert_table() -> str:
    """SG-BERT's tables and figures."""
    layers = read("layers_stsb")["scores"][WIKI]
    known = [score for curve in layers.values() for score in curve if score is not None]
    opt, forms = _trained("sg-opt"), ("sg-opt2", "sg-opt1", "sg")
    rows = [
        ["table 1: SG, average of seven STS sets", "BERT-base 72.17 ± 0.44", TRAINING.format("sg"), _trained("sg")],
        ["table 1: SG-OPT", "BERT-base 74.62 ± 0.25", TRAINING.format("sg-opt"), opt],
        [
            "table 1: from a sentence encoder, SG / SG-OPT",
            "SBERT-base 78.41 ± 0.33 / 79.41 ± 0.17",
            TRAINING.format("minilm-sg minilm-sg-opt"),
            f"{MINI} {_trained('minilm-sg')} / {_trained('minilm-sg-opt')}",
        ],
        [
            "table 1: mean of the last layer",
            "BERT-base 52.57; SBERT-base 74.85",
            "`python benchmarks/quality.py`",
            f"{WIKI} {_quality(WIKI, 'last layer')}; {MINI} {_quality(MINI, 'last layer')}",
        ],
        [
            "table 1: WK pooling",
            "BERT-base 25.58",
            "`python benchmarks/baselines.py`",
            f"{WIKI} {_baseline('SBERT-WK')}",
        ],
        [
            "table 1: flow, fitted on the target text",
            "BERT-base 68.77",
            "`python benchmarks/baselines.py`",
            f"{WIKI} {_baseline('flow, last')}",
        ],
        [
            "tables 2 and 3: multilingual STS",
            "MBERT, Spanish 82.74; Arabic 58.52, Spanish 80.19, English 78.03",
            "`layerwise evaluate MODEL --suite multilingual`",
            NONE,
        ],
        [
            "table 4: SentEval, average of seven",
            "BERT-base mean 85.85, SG-OPT 86.60",
            "`layerwise evaluate MODEL --suite transfer --protocol senteval-mlp`",
            f"after SG-OPT {NONE}",
        ],
        [
            "table 5: opt3, opt2, opt1, base",
            "74.62, 73.14, 72.61, 72.17",
            TRAINING.format("sg-opt sg-opt2 sg-opt1 sg"),
            ", ".join([opt, *map(_trained, forms)]),
        ],
        [
            "table 5: temperature, λ, no head",
            "τ 0.1: 70.39; τ 0.001: 74.16; λ 0: 73.76; λ 1: 73.18; no head 72.78",
            "`layerwise train sg-opt --set objective.sg.temperature=0.1`",
            NONE,
        ],
        [
            "table 6: seconds on STS-B",
            "SG-OPT: training 455, inference 10.5",
            "`python benchmarks/training_speed.py`",
            f"{_step('SG-OPT, cached views')} a step of 64; {_step('SG-OPT, the copy runs along')} with a live copy",
        ],
        ["table 7: back-translation and SG-OPT", "75.10 ± 0.15", "`layerwise train bt-sg-opt --data FILE`", NONE],
        ["tables 8 and 9: settings", "—", "`layerwise recipes sg-opt`", "the recipe"],
        [
            "table 10: fine-tuning on GLUE after SG-OPT",
            "no clear change (3 of 5 tasks better)",
            "`layerwise multitask glue.toml --model trained/model`",
            NONE,
        ],
        ["table 11: RoBERTa", "SG-OPT 73.42 ± 0.31 (base)", "`layerwise train sg-opt --model roberta-base`", NONE],
        [
            "figure 1: STS-B by layer and pooling",
            "16.71 ([CLS], layer 10) to 63.19 (max, layer 2)",
            "`python benchmarks/layers.py`",
            f"{WIKI} {min(known):.2f} ([CLS], layer {layers['cls'].index(min(known))}) to {max(known):.2f} (max, layer "
            f"{layers['max'].index(max(known))})",
        ],
    ]
    return table(HEAD, rows)


def sscl_table() -> str:
    """SSCL's tables and figures."""
    rows = [
        [
            "table 1: STS-B, SimCSE of 12 layers → SSCL",
            "BERT-base 76.85 → 79.03",
            TRAINING.format("simcse sscl-progressive"),
            f"{_trained('simcse', 'stsb')} → {_trained('sscl-progressive', 'stsb')}",
        ],
        [
            "table 2: average of seven, SimCSE → SSCL-SimCSE",
            "BERT-base 76.25 → 77.90",
            TRAINING.format("simcse sscl-progressive"),
            f"{_trained('simcse')} → {_trained('sscl-progressive')}",
        ],
        [
            "table 2: SSCL-BERT, cls / avg",
            "BERT-base 62.42 / 62.56",
            TRAINING.format("sscl-bert-cls sscl-bert-avg"),
            f"{_trained('sscl-bert-cls')} / {_trained('sscl-bert-avg')}",
        ],
        [
            "table 2: SSCL-SimCSE, large",
            "BERT-large 79.69",
            "`layerwise train sscl-progressive --model bert-large-uncased`",
            NONE,
        ],
        [
            "table 3: transfer, average of seven",
            "SimCSE 85.11, SSCL-SimCSE 85.61",
            "`layerwise evaluate MODEL --tasks mr,cr,subj,mpqa,sst2,trec,mrpc`",
            NONE,
        ],
        [
            "table 4: probing",
            "SentLen: SimCSE 80, SSCL 88.5",
            "`layerwise evaluate MODEL --suite probing` (X-Probe's small form)",
            NONE,
        ],
        [
            "table 5: 128, 256, 768 dimensions",
            "SSCL-SimCSE 76.53, 77.97, 77.90",
            SWEEPS,
            _swept("d", WIDTHS),
        ],
        [
            "table 6: temperature 0.001, 0.01, 0.05, 0.1",
            "SSCL 75.77, 77.40, 77.90, 74.12",
            SWEEPS,
            _swept("t", TEMPERATURES),
        ],
        ["table 7: batch 128", "SimCSE 76.21", "`layerwise train simcse-unsup --set train.batch_size=128`", NONE],
        [
            "figure 3: one layer (11th), two layers",
            "77.80, 77.90",
            TRAINING.format("sscl-simcse sscl-progressive"),
            f"{_trained('sscl-simcse')}, {_trained('sscl-progressive')}",
        ],
        [
            "figure 1: SetSim of the last two layers, SimCSE → SSCL",
            "curves",
            TRAINING.format("simcse sscl-simcse"),
            f"{_smooth('simcse', 'setsim_cls')} → {_smooth('sscl-simcse', 'setsim_cls')}",
        ],
        [
            "figure 4: TokSim of the last layer, SimCSE → SSCL",
            "above 0.9, then visibly lower",
            TRAINING.format("simcse sscl-simcse"),
            f"{_smooth('simcse', 'toksim')} → {_smooth('sscl-simcse', 'toksim')}",
        ],
        ["figure 5: token matrices", "—", "`layerwise analyze MODEL --measure tokens`", NO_MODEL],
        [
            "figure 6: STS-B dev by training step, SimCSE → SSCL",
            "SSCL leads by 5 to 15 points early; best at step 1,500",
            TRAINING.format("simcse sscl-simcse"),
            "; ".join(f"step {step}: {_at(step, 'simcse')} → {_at(step, 'sscl-simcse')}" for step in (125, 500, 1500)),
        ],
    ]
    return table(HEAD, rows)


def layer_att_pooler_table() -> str:
    """LayerAttPooler's tables and figures; its averages are by 'wmean'."""
    eq8, eq6 = TRAINING.format("sup lap-sup"), TRAINING.format("sup-eq6 lap-sup-eq6")
    quora = read("retrieval")["encoders"][MINI]["exact"]
    rows = [
        [
            "table 1: without labels (eq. 7), [CLS] → LayerAttPooler, by wmean",
            "BERT-base 76.10 → 76.90",
            TRAINING.format("simcse lap-unsup"),
            _change("simcse", "lap-unsup"),
        ],
        ["table 1: NLI triples (eq. 8)", "BERT-base 79.88 → 80.54", eq8, _change("sup", "lap-sup")],
        ["table 1: NLI pairs (eq. 6)", "BERT-base 77.28 → 78.58", eq6, _change("sup-eq6", "lap-sup-eq6")],
        [
            "table 2: STS-B, [CLS] → attention and last [CLS] (eq. 8)",
            "84.34 → 86.76",
            eq8,
            f"{_trained('sup', 'stsb')} → {_trained('lap-sup', 'stsb')}",
        ],
        [
            "table 2: the other poolers",
            "84.76 to 86.57",
            "`layerwise train lap-sup --set 'model.pooler=attention(cls, cls)'`",
            NONE,
        ],
        [
            "table 3: Quora, MRR@10, pooler in training only",
            "BERT-base 63.48 → 64.32",
            "`python benchmarks/retrieval.py`",
            f"after LayerAttPooler {NONE}; {MINI} as it is, on other questions: {quora['mrr@10']:.2f}",
        ],
        [
            "the pooler in training only, average of seven (eq. 8)",
            "—",
            eq8,
            f"{_trained('lap-sup')} with it, {_trained('lap-sup', kind='train_only')} without",
        ],
        ["table 4: settings", "—", "`layerwise recipes lap-sup`", "the recipe"],
        [
            "table 5: DiffCSE, STS-B dev",
            "83.23 → 83.87",
            TRAINING.format("diffcse diffcse-lap"),
            f"{_dev('diffcse')} → {_dev('diffcse-lap')}",
        ],
        [
            "figures 1 and 2: STS-B by layer and pooling",
            "curves",
            "`layerwise analyze MODEL --measure scores --pairs stsb`",
            "[layers.svg](../layers.svg)",
        ],
        ["figure 3: attention by layer", "curves", "`layerwise analyze MODEL --measure attention`", NO_MODEL],
    ]
    return table(HEAD, rows)


def minbert_table() -> str:
    """The tables of the minBERT report."""
    rows = [
        [
            "tables 1 and 7: SST-5, heads alone; fine-tuned",
            "0.409; 0.530",
            MULTITASK.format("frozen default"),
            f"{_tasks('frozen', 'sst/accuracy')}; {_tasks('default', 'sst/accuracy')}",
        ],
        [
            "table 2: SST-5 by one linear layer; three; three, weighted",
            "0.316; 0.319; 0.345",
            MULTITASK.format("default mlp mlp-inverse"),
            "; ".join(_tasks(row, "sst/accuracy") for row in ("default", "mlp", "mlp-inverse")),
        ],
        [
            "table 3: Quora by [u; v]; by [\\|u−v\\|; \\|u+v\\|]",
            "0.379; 0.455",
            MULTITASK.format("concat default"),
            f"{_tasks('concat', 'quora/accuracy')}; {_tasks('default', 'quora/accuracy')}",
        ],
        [
            "table 4: overall, truncating; padding; cycling",
            "mean 0.225; 0.240; 0.257",
            MULTITASK.format("truncating padding default"),
            "; ".join(_tasks(row, "overall") for row in ("truncating", "padding", "default")),
        ],
        [
            "table 5: overall, equal weights; inverse size",
            "0.424; 0.466 (with clipping)",
            MULTITASK.format("default inverse"),
            f"{_tasks('default', 'overall')}; {_tasks('inverse', 'overall')}",
        ],
        [
            "table 6: SST-5, contrast alone; with cross-entropy",
            "0.402; 0.441",
            MULTITASK.format("contrast-alone contrast"),
            f"{_tasks('contrast-alone', 'sst/accuracy')}; {_tasks('contrast', 'sst/accuracy')}",
        ],
        [
            "table 8: overall, step by step",
            "0.390; 0.393; 0.424; 0.583 (its test)",
            MULTITASK.format("step-1 step-2 step-3 step-4"),
            "; ".join(_tasks(f"step-{step}", "overall") for step in (1, 2, 3, 4)),
        ],
        [
            "figure 1: dropout of the second view, SST-5: 0.05, 0.1, 0.2, 0.3",
            "0.1 is best",
            MULTITASK.format("view-0.05 contrast view-0.2 view-0.3"),
            "; ".join(_tasks(row, "sst/accuracy") for row in ("view-0.05", "contrast", "view-0.2", "view-0.3")),
        ],
    ]
    return table(HEAD, rows)


def _spread(values: list[float], digits: int = 2) -> str:
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def _lc(sets: dict[str, Any], kind: str) -> str:
    """The average over the sets, split by split."""
    return _spread([mean(split) for split in zip(*(one[kind]["test"] for one in sets.values()), strict=True)])


def _fixed(sets: dict[str, Any], mix: str) -> str:
    return f"{mean(one['fixed'][mix] for one in sets.values()):.2f}"


def _pair(cell: dict[str, float]) -> str:
    return f"{100 * cell['last_mean']:.1f} → {100 * cell['mean']:.1f}"


def _ablated(encoder: str) -> str:
    """The last layer, random layers with the deviation of the draws, and the combination."""
    tasks = [read("ablations")["encoders"][encoder][task] for task in ABLATED]
    last, best = (", ".join(f"{task[kind]['mean']:.2f}" for task in tasks) for kind in ("last", "best"))
    random = ", ".join(f"{task['random']['mean']:.2f} ± {task['random']['sd']:.2f}" for task in tasks)
    return f"{last}; {random} (± over {len(tasks[0]['random']['mixes'])} sets); {best}"


def _best_sizes(encoder: str) -> str:
    """How many layers score best, by task."""
    tasks = read("ablations")["encoders"][encoder]
    lines = [tasks[task]["sizes"] for task in ABLATED]
    best = ", ".join(str(max(sizes, key=lambda line: line["mean"])["number"]) for sizes in lines)
    return f"{best} of {len(lines[0])}"


def _largest_loss(encoder: str) -> str:
    """The most that the best set loses where one layer may not be used."""
    losses = [
        (task["best"]["mean"] - line["mean"], name, line["number"])
        for name, task in read("ablations")["encoders"][encoder].items()
        for line in task["without"]
    ]
    loss, name, layer = max(losses)
    return f"{loss:.2f} ({ABLATED[name]}, layer {layer})"


def _fixed_transfer(tasks: dict[str, Any]) -> str:
    """Sets that nothing chose, by the inner folds of the search; random layers are the mean of all its sets."""
    tables = [{tuple(one["layers"]): 100 * one["dev"] for one in task["table"]} for task in tasks.values()]
    last, four = (mean(scores[layers] for scores in tables) for layers in ((12,), (9, 10, 11, 12)))
    every = mean(mean(scores.values()) for scores in tables)
    return (
        f"{WIKI} {last:.2f}; {four:.2f}; {every:.2f} (the five tasks of table 1 by its inner folds; random: mean of "
        f"all {len(tables[0]):,} sets of up to 4)"
    )


def _at(step: int, row: str) -> str:
    """The dev score at a training step."""
    return _spread([100 * dict(run["curve"])[step] for run in _runs(row)])


def _runs(row: str) -> list[dict[str, Any]]:
    return [run for run in read("training")["runs"] if run["row"] == row]


def _trained(row: str, task: str = "average", *, kind: str = "test", aggregation: str = "all") -> str:
    return _spread([run[kind][aggregation][task] for run in _runs(row)])


def _swept(letter: str, values: tuple[float, ...]) -> str:
    """SimCSE and SSCL by a setting that is varied, with a note where there is one seed of each."""
    runs: dict[str, list[float]] = {}
    for run in read("training-views")["runs"]:
        runs.setdefault(run["row"], []).append(run["test"]["average"])
    rows = {
        label: [runs.get(f"{name}-{letter}{value}", []) for value in values]
        for name, label in (("simcse", "SimCSE"), ("sscl-simcse", "SSCL"))
    }
    scores = (f"{label} {', '.join(_spread(row) if row else NONE for row in of)}" for label, of in rows.items())
    seeds = max(len(row) for of in rows.values() for row in of)
    return f"{', '.join(map(str, values))}: {'; '.join(scores)}" + (" (one seed)" if seeds == 1 else "")


def _change(before: str, after: str) -> str:
    return f"{_trained(before, aggregation='wmean')} → {_trained(after, aggregation='wmean')}"


def _dev(row: str) -> str:
    return _spread([run["training"]["dev"]["best"] for run in _runs(row)])


def _smooth(row: str, measure: str) -> str:
    return _spread([run["smoothing"][measure][-1] for run in _runs(row)], 3)


def _quality(encoder: str, way: str) -> str:
    return f"{mean(read('quality')['encoders'][encoder]['rows'][way][name]['score'] for name in SETS):.2f}"


def _baseline(method: str) -> str:
    """What is fitted on text: on the set's own test sentences, as in the papers."""
    rows = [row for row in read("baselines")["rows"] if row["method"] == method]
    fitted = [row for row in rows if row["protocol"].startswith("saw test text")]
    return f"{(fitted or rows)[0]['average']:.2f}"


def _step(name: str) -> str:
    return f"{mean(read('training_speed')['milliseconds_a_step'][name]):.0f} ms"


def _tasks(row: str, score: str) -> str:
    own = [run for run in read("multitask")["runs"] if run["row"] == row and run["encoder"] == WIKI]
    return _spread([run["dev"][score] for run in own], 3)
