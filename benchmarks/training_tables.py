"""The tables about training, from raw results; `tables.py` writes them."""

import json
import re
from operator import truediv
from statistics import mean, median, stdev
from typing import Any

from evaluation_tables import SETS, read, table
from measure import RESULTS
from own_views import MINILM, MPNET, OWN_VIEWS, SEARCHED
from training_rows import ROWS
from training_views_rows import CLAUSES, MIXED, SHUFFLED, SWEEPS, Row
from training_views_rows import ROWS as PROMPT_ROWS

_LABELS = {"no": "Wikipedia", "triples": "NLI triples", "pairs": "pairs", "teacher": "Wikipedia; teacher saw labels"}
_OUTSIDE = {"twitter-url": "Twitter URL", "semrel-eng": "SemRel", "biosses": "BIOSSES"}
PROMPT_RECIPES = {  # row -> the recipe that says what it reached
    "repetition": "small-prompt-simcse",
    "distil-minilm": "small-prompt-distil",
    "distil-two-clauses": "small-prompt-distil-two",
    "decoder": "small-prompt-views",
}
DECODER_RECIPES = {"smollm": "smollm-simcse", "smollm-views-situation": "smollm-distil"}
EXITS_RECIPES = {"exits": "small-prompt-exits", "exits-mpnet-longer": "small-prompt-exits-distil"}
_TEACHERS = {"default": MINILM, OWN_VIEWS: "searched"}  # a recipe's name for a teacher, and a run's

PRINTED = "training-views-h200.txt"
UNTRAINED = {
    "last layer, mean": "last layer",
    "layer combination": "layer combination",
    "whitening, fitted on STS-B train": "whitening, fitted on STS-B train",
}
GROUPS = {
    "without labels": (
        "simcse", "sscl-simcse", "sscl-progressive", "sscl-bert-cls", "sscl-bert-avg", "lap-unsup", "simcse-mean",
        "sscl-mean", "diffcse", "diffcse-lap",
    ),
    "without labels, on the sentences of STS-B": (
        "sg", "sg-opt1", "sg-opt2", "sg-opt", "stsb-simcse", "sg-simcse-equal", "sg-simcse",
    ),
    "with 55,000 NLI triples": ("sup-eq6", "lap-sup-eq6", "sup", "lap-sup", "sscl-sup", "lap-sscl-sup"),
    "from all-MiniLM-L6-v2": ("minilm-sg", "minilm-sg-opt"),
}  # fmt: skip
SMOOTH = {  # row -> the pooling that its embedding has
    "simcse": "cls", "sscl-simcse": "cls", "sscl-progressive": "cls", "sscl-bert-cls": "cls", "simcse-mean": "mean",
    "sscl-mean": "mean", "sscl-bert-avg": "mean", "sup": "cls", "sscl-sup": "cls", "lap-sup": "cls",
    "lap-sscl-sup": "cls",
}  # fmt: skip
HEAD = ["", "12", "13", "14", "15", "16", "B", "SICK-R", "avg", "dev", "seeds"]


def training_table() -> str:
    """Every row of training on the seven STS sets, and what needs none."""
    runs = read("training")["runs"]
    lines = []
    known = read("quality")["encoders"]
    for label, way in UNTRAINED.items():
        scores = [known["wiki-mlm-12x384"]["rows"][way][name]["score"] for name in SETS]
        lines.append([f"no training: {label}", *(f"{one:.2f}" for one in (*scores, mean(scores))), "", ""])
    for group, names in GROUPS.items():
        if group.startswith("from"):
            scores = [known["all-MiniLM-L6-v2"]["rows"]["last layer"][name]["score"] for name in SETS]
            lines.append(
                [
                    "all-MiniLM-L6-v2 without further training",
                    *(f"{one:.2f}" for one in (*scores, mean(scores))),
                    "",
                    "",
                ]
            )
        for name in names:
            own = [run for run in runs if run["row"] == name]
            lines += [_line(f"{ROWS[name].label} ({group})", own, "test")] if own else []
            lines += [_line(f"{ROWS[name].label}, pooler in training only", own, "train_only")] if _only(own) else []
    return table(HEAD, lines) + "\n" + _note(runs)


def training_summary() -> str:
    """Averages over the seven sets."""
    runs, known = read("training")["runs"], read("quality")["encoders"]["wiki-mlm-12x384"]["rows"]
    lines = []
    for label in ("last layer", "layer combination"):
        lines.append([f"no training: {label}", f"{mean(known[label][name]['score'] for name in SETS):.2f}", ""])
    for name in ("simcse", "sscl-progressive", "lap-unsup", "sg-opt", "sg-simcse", "sup", "lap-sup", "lap-sscl-sup"):
        own = [run for run in runs if run["row"] == name]
        if own:
            text = "NLI triples" if "sup" in name.split("-") else "STS-B's sentences" if "sg" in name else "wiki"
            scores = _spread([run["test"]["all"]["average"] for run in own])
            lines.append([f"{ROWS[name].label} ({text})", scores, str(len(own))])
    note = (
        "wiki-mlm-12x384, Spearman × 100, 'all', test splits (`benchmarks/training.py`, H200); checkpoints are picked "
        "on the dev split of STS-B. For every set, the protocol and its limits, see "
        "[train](../train.md#what-was-reached)."
    )
    return table(["average of seven STS sets", "score", "seeds"], lines) + f"\n{note}\n"


def prompts_table() -> str:
    """Training from the mask token of a prompt: every row on the seven STS sets, and on pairs outside them."""
    runs = read("training-views")["runs"]
    lines = []
    for name, row in PROMPT_ROWS.items():
        own = _longest([run for run in runs if run["row"] == name and name not in SWEEPS])
        if own:
            scores = [_spread([run["test"][key] for run in own]) for key in (*SETS, "average")]
            outside = [_spread([run["outside"][key] for run in own if key in run["outside"]]) for key in _OUTSIDE]
            dev = _spread([run["training"]["dev"]["best"] for run in own])
            texts, steps = (
                f"{mean(values):,.0f}"
                for values in zip(
                    *((run["training"]["text"]["kept"], run["training"]["steps"]) for run in own), strict=True
                )
            )
            lines.append([f"{row.label} ({_stamp(row)})", *scores, dev, *outside, texts, steps, str(len(own))])
    seconds = max(run["training"]["seconds"] for run in runs)
    note = (
        "wiki-mlm-12x384, Spearman × 100, all pairs of the test splits; checkpoints are picked on the dev split of "
        "STS-B. Twitter URL (average precision), SemRel (English) and BIOSSES are outside STS and were not used for "
        "any selection; some sentences of SemRel are in STS-B and in NLI, so it is not scored after training on "
        "triples or pairs; 2 are in Wikipedia's text. Texts: sentences of Wikipedia, with the clauses counted where "
        "they are named; triples; pairs; or the sentences of triples and pairs, without their labels and without those "
        "of the test sets, and as many of Wikipedia. Batches of 128 without a teacher, 512 with one, 256 of triples "
        "and pairs. None of the Wikipedia text is in the seven test sets. Some sentences of NLI's triples are (in "
        "STS-12 369, STS-15 384, STS-B 256, SICK-R 522). all-MiniLM-L6-v2 and all-mpnet-base-v2 were trained with "
        "labels. "
        "SmolLM2-135M-Instruct is the published chat model, not trained for embeddings; its views, and those of the "
        "two others in *searched views of both*, were chosen on the graded pairs of STS-B dev that share no sentence "
        "with the test sets. At "
        f"most {seconds:.0f} s on an H200 beside up to twelve other processes (`benchmarks/training_views.py`; rows of "
        "its list that are neither here nor below were not run)."
    )
    return table([*HEAD[:-1], *_OUTSIDE.values(), "texts", "steps", "seeds"], lines) + f"\n{note}\n"


def _stamp(row: Row) -> str:
    """The text of a row, and which labels it or its teacher saw."""
    searched = bool(set(row.teachers) & SEARCHED.keys())
    text = _LABELS[row.labels].replace("Wikipedia", "Wikipedia and others" if row.text == MIXED else "Wikipedia")
    return text + ("; teacher's views chosen on graded dev pairs" if searched else "")


def printed_table() -> str:
    """The rows of the second run from a prompt, of which only what it printed is left."""
    text = (RESULTS / PRINTED).read_text(encoding="utf-8")
    found = re.findall(r"^(\S+) 0: dev (\S+) @ (\d+), test (\S+) ", text, flags=re.MULTILINE)
    scores = {name: (dev, step, test) for name, dev, step, test in found}
    measured = {run["row"] for run in read("training-views")["runs"]}
    lines = [
        [f"{row.label} ({_stamp(row)})", scores[name][2], scores[name][0], scores[name][1]]
        for name, row in PROMPT_ROWS.items()
        if name in scores and name not in measured
    ]
    note = (
        "The same protocol in another run with one seed. These numbers are from its printed output, because the result "
        f"files were lost with the machine (`results/{PRINTED}`). Differences below a point mean little."
    )
    return table(["", "avg", "dev", "at step"], lines) + f"\n{note}\n"


EXITS = {  # one model for all exits
    "exits": "one model, contrastive, from the pretrained encoder",
    "exits-mpnet-longer": "one model, distilled from all-mpnet-base-v2",
    "exits-mpnet": "one model, distilled from all-mpnet-base-v2",
}
ALONE = "alone-mpnet"  # a model for each exit
CUT = {  # without training for it
    "uncut": "SimCSE by the last layer, cut",
    "uncut-mpnet": "last layer distilled from all-mpnet-base-v2, cut",
}
WIDTHS = {"full width": 0, "half width": 192, "quarter width": 96}
BLOCKS, WIDTH = (3, 6, 9, 12), 384


def exits_table() -> str:
    """Every exit of one model trained for all of them, models trained for one exit alone, and models that are cut."""
    runs = _by_row("training-exits")
    alone = {(blocks, width): runs.get(f"{ALONE}-{blocks}x{width}") for blocks in BLOCKS for width in WIDTHS.values()}
    lines = []
    for row, label in EXITS.items():
        lines += [_exits_line(f"{label}, {_steps(runs[row])}", blocks, runs[row]["exits"]) for blocks in BLOCKS]
        if row == "exits-mpnet":
            scores = {f"{blocks}x{width}": run["test"] for (blocks, width), run in alone.items() if run}
            each = f"{len(scores)} models, one for each exit, distilled from all-mpnet-base-v2"
            lines += [_exits_line(f"{each}, {_steps(runs[f'{ALONE}-3x0'])} each", blocks, scores) for blocks in BLOCKS]
    for row, label in CUT.items():
        lines += [_exits_line(f"{label}, {_steps(runs[row])}", blocks, runs[row]["exits"]) for blocks in BLOCKS]
    trained = "; ".join(
        f"`{recipe}`, {_steps(runs[row])}, {runs[row]['seconds']:.0f} s on an H200 beside other processes, "
        f"{runs[row]['memory_gib']:.1f} GiB"
        for row, recipe in EXITS_RECIPES.items()
    )
    note = (
        f"wiki-mlm-12x384, seed 0, average of the seven STS sets ({trained}). Work: blocks that run, relative to the "
        "whole model; in brackets, the share of an index's memory. Cut: the same encoder and text without the "
        "objective `exits`, its last layer trained by rotation or with SimCSE, and then cut. all-mpnet-base-v2 was "
        "trained with labels (`results/training-exits.json`)."
    )
    head = [f"{name} ({(width or WIDTH) / WIDTH:g}×)" for name, width in WIDTHS.items()]
    return table(["", "blocks", "work", *head], lines) + f"\n{note}\n"


def _exits_line(label: str, blocks: int, scores: dict[str, Any]) -> list[str]:
    """The scores of the exits at one layer, and what they cost."""
    cells = [f"{scores[f'{blocks}x{width}']['average']:.1f}" for width in WIDTHS.values()]
    return [label, str(blocks), f"{blocks / BLOCKS[-1]:g}×", *cells]


def _steps(run: dict[str, Any]) -> str:
    return f"{run['training']['steps']:,} steps"


DECODER = {
    "smollm": "SimCSE, echo prompt",
    "smollm-views": "distilled from its own views, echo prompt",
    "smollm-views-situation": "distilled from its own views, last token of one prompt",
    "smollm-views-slow": "distilled from its own views, last token of one prompt, learning rate 3e-5",
    "smollm-views-lora": "distilled from its own views, echo prompt, LoRA",
    "smollm-two-sets": "distilled from two sets of its own views on sentences and clauses, last token of one prompt",
}


def decoder_table() -> str:
    """SmolLM2 trained without labels, in one pass."""
    runs = _by_row("training-smollm")
    lines = []
    for row, label in DECODER.items():
        run, dev = runs[row], runs[row]["training"]["dev"]
        cells = [f"{run['test'][name]:.2f}" for name in (*SETS, "average")]
        cost = [f"{run['training']['steps']:,}", f"{run['training']['seconds']:.0f} s", f"{run['memory_gib']:.1f} GiB"]
        lines.append([label, *cells, f"{dev['best']:.2f} at {dev['at_step']}", *cost])
    head = [*HEAD[:-2], "dev", "steps", "time", "memory"]
    note = (
        "SmolLM2-135M-Instruct, Spearman × 100, all pairs of the test splits, one seed, Wikipedia text only; "
        "checkpoints are picked on the dev split of STS-B, on which the teacher's views were selected too; H200 "
        "beside other processes (`results/training-smollm.json`)."
    )
    return table(head, lines) + f"\n{note}\n"


def _by_row(name: str) -> dict[str, Any]:
    return {run["row"]: run for run in read(name)["runs"]}


def smoothing_table() -> str:
    """TokSim and SetSim of the upper layers."""
    runs = read("training")["runs"]
    lines = []
    for name, pooling in SMOOTH.items():
        own = [run["smoothing"] for run in runs if run["row"] == name]
        if own:
            tokens = [_spread([one["toksim"][layer] for one in own], 3) for layer in (-3, -2, -1)]
            sets = [_spread([one[f"setsim_{pooling}"][pair] for one in own], 3) for pair in (-2, -1)]
            lines.append([ROWS[name].label, *tokens, *sets, str(len(own))])
    head = ["", "TokSim 10", "TokSim 11", "TokSim 12", "SetSim 10–11", "SetSim 11–12", "seeds"]
    return table(head, lines) + "\nOn the sentences of STS-B test; SetSim uses the pooled vectors of each row.\n"


def layers_table() -> str:
    """What the layers were to a training, what it reached, and what became of the last layers."""
    runs = read("training")["runs"]
    roles = {"simcse": "none", "sg-opt": "positives", "sscl-simcse": "negatives", "lap-unsup": "pooler",
             "sg-simcse": "positives, with SimCSE", "stsb-simcse": "none, same text as the row above"}  # fmt: skip
    lines = []
    for name, role in roles.items():
        own = [run for run in runs if run["row"] == name]
        average = _spread([run["test"]["all"]["average"] for run in own])
        setsim = _spread([run["smoothing"]["setsim_cls"][-1] for run in own], 3) if name != "lap-unsup" else ""
        lines.append([role, ROWS[name].label, average, setsim, str(len(own))])
    note = (
        "wiki-mlm-12x384, average of seven STS sets, Spearman × 100, 'all', test splits. SetSim is that of [CLS] in "
        "the last two layers; LayerAttPooler has none because it pools more than [CLS]. Mean ± standard deviation "
        "over the seeds (`benchmarks/training.py`, H200)."
    )
    return table(["role of the layers", "", "seven STS sets", "SetSim 11–12", "seeds"], lines) + f"\n{note}\n"


def trials_table() -> str:
    """The dev-only search: what was tried, what it scored."""
    trials: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in sorted(read("training_search")["runs"], key=lambda run: list(ROWS).index(run["row"])):
        put_in = ", ".join(f"`{one}`" for one in run["put_in"]).replace("|", "\\|")
        trials.setdefault((ROWS[run["row"]].label, put_in), []).append(run["dev"])
    lines = [[*trial, _spread([dev["best"] for dev in devs]), str(len(devs))] for trial, devs in trials.items()]
    note = "STS-B dev, Spearman × 100 (`benchmarks/training_search.py`, H200); no test set was scored."
    return table(["", "overrides", "dev", "seeds"], lines) + f"\n{note}\n"


def speed_table() -> str:
    """A step's time here and in sentence-transformers."""
    found = read("training_speed")
    times = {name: median(of) for name, of in found["milliseconds_a_step"].items() if of}
    lines = [
        [name, f"{one:.1f} ms", f"{1000 * found['batch'] / one:,.0f}", f"{times['sentence-transformers'] / one:.2f}×",
         f"{one / times['SimCSE']:.2f}×"]
        for name, one in times.items()
    ]  # fmt: skip
    note = (
        f"{found['device']}, BERT-base's shape, batch {found['batch']} × 2 dropout views (SG-OPT needs one), at most "
        f"32 tokens, bf16; median of {max(map(len, found['milliseconds_a_step'].values()))} interleaved runs of "
        f"{found['steps']} steps after a warm-up. sentence-transformers: its own trainer with "
        f"MultipleNegativesRankingLoss on the same sentences. {found.get('note', '')}"
    )
    return table(["", "time per step", "sentences/s", "speed", "step time / SimCSE"], lines) + f"\n{note.strip()}\n"


def terms_speed_table() -> str:
    """A step's time with each term of training from a prompt, to SimCSE's."""
    found = read("training_speed_terms")
    base, *_ = found["order"]
    now, earlier, alone = found["milliseconds_a_step"], found["earlier"], found["one_tokenizer_thread"]
    lines = []
    for name in found["order"]:
        times, of_simcse = (now[name], now[base]) if name in now else (earlier[name], earlier[base])
        lines.append([name, f"{median(times):.1f} ms", f"{median(map(truediv, times, of_simcse)):.2f}×"])
    waited = " and ".join(f"{median(map(truediv, times, now[base])):.2f}×" for times in alone.values())
    note = (
        f"{found['device']}, BERT-base's shape, batch {found['batch']} × 2 passes, the mask token of a prompt, at most "
        f"32 tokens, bf16; medians of {len(now[base])} interleaved runs of {found['steps']} steps after a warm-up, and "
        f"of their ratios to SimCSE's step; a teacher's vectors are computed before the steps "
        f"(`benchmarks/training_speed.py --terms`). Word repetition and two prompts are from earlier runs, beside "
        f"their own SimCSE ({median(earlier[base]):.1f} ms): in the latest run, tokenizers had one thread "
        f"(`TOKENIZERS_PARALLELISM=false`), and these two, with twice as many texts to tokenize, waited for it "
        f"({waited})."
    )
    return table(["", "time per step", "step time / SimCSE"], lines) + f"\n{note}\n"


def measured() -> dict[str, list[dict[str, Any]]]:
    """Recipe -> the runs that its `reached` cites, one a seed."""
    runs = read("training")["runs"]
    found = {}
    for name, row in ROWS.items():
        own = [run for run in runs if run["row"] == name and not run["put_in"] and not row.sets]
        if own and row.encoder == "wiki-mlm-12x384":
            found[row.recipe] = own
    prompts = read("training-views")["runs"]
    found |= {recipe: _longest([run for run in prompts if run["row"] == row]) for row, recipe in PROMPT_RECIPES.items()}
    for file, rows in (("training-smollm", DECODER_RECIPES), ("training-exits", EXITS_RECIPES)):
        by_row = _by_row(file)
        found |= {recipe: [by_row[row]] for row, recipe in rows.items()}
    return found


def reached() -> dict[str, str]:
    """Recipe -> what it reached, on what, in what time: the `reached` of its file."""
    return {recipe: f"{_score_and_cost(own)}{_measured_with(own[0], recipe)}" for recipe, own in measured().items()}


def _score_and_cost(own: list[dict[str, Any]]) -> str:
    """The score of runs of one row, their steps and time."""
    first = own[0]
    steps, seconds = (round(mean(run["training"][key] for run in own)) for key in ("steps", "seconds"))
    by, memory = " by wiki-mlm-12x384", ""
    if "exits" in first:
        low, high = (pick(score["average"] for score in first["exits"].values()) for pick in (min, max))
        scores, seconds = f"{low:.1f} to {high:.1f}", round(first["seconds"])
        by = " by the twelve exits of wiki-mlm-12x384"
    else:
        scores = _spread([run["test"].get("all", run["test"])["average"] for run in own])
    if first["row"] in DECODER:
        by, memory = "", f", {first['memory_gib']:.1f} GiB"
    return (
        f"{scores} on average over seven STS sets{by}, {len(own)} seed(s); {steps:,} steps on an H200 in {seconds} s "
        f"beside other runs{memory}"
    )


def _measured_with(run: dict[str, Any], name: str) -> str:
    """What a reader must know of a run: settings that its recipe does not have, its text's order, its teacher."""
    notes = [f"{key}={json.dumps(value)}" for key, (value, _) in different_settings(run, name).items()]
    if _text_of(run) == SHUFFLED:
        notes.append("the sentences and clauses in random order")
    teachers = _settings(run["training"]["recipe"]).get("objective.distil.teacher", [])
    many = "s" if len(teachers) > 1 else ""
    with_labels = f"; the teacher{many} saw labels" if {MINILM, MPNET} & set(teachers) else ""
    chosen = "; the teacher's views were chosen on graded dev pairs" if "searched" in teachers else ""
    return (f"; measured with {', '.join(notes)}" if notes else "") + with_labels + chosen


def different_settings(run: dict[str, Any], name: str) -> dict[str, tuple[Any, Any]]:
    """Settings of a run that are not those of its recipe as it is now: (measured, in the recipe).

    Files, encoder and dev task are the machine's. A setting that has come since, or has another name now, is not
    compared; `steps` replaces `epochs`.
    """
    from layerwise.train import load_recipe

    there, here = _settings(run["training"]["recipe"]), _settings(load_recipe(name).model_dump(mode="json"))
    if _text_of(run) in (CLAUSES, SHUFFLED):  # its clauses were split off before
        there["data.clauses"] = True
    if there.get("train.steps"):
        there.pop("train.epochs")
    return {key: (value, here[key]) for key, value in there.items() if key in here and value != here[key]}


def _settings(recipe: dict[str, Any]) -> dict[str, Any]:
    """What a recipe trains, by the keys of `--set`."""
    tables = {name: recipe[name] for name in ("data", "model", "train")}
    tables |= {f"objective.{term['name']}": term for term in recipe["objectives"]}
    flat = {f"{table}.{key}": value for table, values in tables.items() for key, value in values.items()}
    teacher = flat.get("objective.distil.teacher")
    if teacher is not None:
        names = [teacher] if isinstance(teacher, str) else teacher
        flat["objective.distil.teacher"] = [_TEACHERS.get(name, name.rpartition("/")[2]) for name in names]
    return {key: value for key, value in flat.items() if key not in ("data.files", "model.encoder")}


def _text_of(run: dict[str, Any]) -> str:
    return str(run["training"]["recipe"]["data"]["files"][0])


def _longest(own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of a row that had most steps; others of it were trials."""
    return [run for run in own if run["training"]["steps"] == max(other["training"]["steps"] for other in own)]


def _line(label: str, own: list[dict[str, Any]], kind: str) -> list[str]:
    scores = [[run[kind]["all"][name] for run in own] for name in (*SETS, "average")]
    cells = [f"{mean(several):.2f}" for several in scores[:-1]]
    dev = [run["training"]["dev"]["best"] for run in own]
    return [label, *cells, _spread(scores[-1]), _spread(dev) if kind == "test" else "", str(len(own))]


def _spread(values: list[float], digits: int = 2) -> str:
    around = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{around}" if values else ""


def _only(own: list[dict[str, Any]]) -> bool:
    return bool(own) and all("train_only" in run for run in own)


def _note(runs: list[dict[str, Any]]) -> str:
    seeds = sorted({len([run for run in runs if run["row"] == row]) for row in {run["row"] for run in runs}})
    counts = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    seen = next((run["training"]["text_equal_to_evaluation"] for run in runs if run["row"] == "simcse"), {})
    equal = ", ".join(f"{count} of {name}" for name, count in seen.items() if count)
    return (
        f"wiki-mlm-12x384 unless stated otherwise; Spearman × 100 in SentEval's form, 'all' aggregation, test splits; "
        f"mean ± standard deviation over {counts} seed(s), see the last column (`benchmarks/training.py`, H200). "
        f"Settings are those of the `small-*` recipes; checkpoints are picked on the dev split of STS-B, test sets are "
        f"scored once. Unlabelled text: the first 100,000 different sentences of wiki1m (equal to evaluation "
        f"sentences: {equal or 'none'}). SG's text is all sentences of STS-B, including those of its test pairs, as in "
        f"its paper.\n"
    )
