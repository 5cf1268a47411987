"""The rows of the table of training from a view: what each part adds to the mask token of a prompt.

A row is a recipe of the package with values put in, on text of the folder that `training_views.py prepare` writes. A
row may begin from the weights that another row reached, and may learn from a model or from another row: "mask", or
"mask less", whose first components are taken away as dev chose.
"""

from dataclasses import dataclass

from own_views import MINILM, MINILM_VIEWS, MPNET, MPNET_VIEWS, OWN_VIEWS

WIKIPEDIA, TRIPLES, PAIRS = "wikipedia.txt", "nli.jsonl", "pairs.jsonl"
CLAUSES, SHUFFLED = "clauses.txt", "shuffled.txt"  # Wikipedia's sentences, each with its clauses; in random order
BLEND = "blend.txt"  # two sentences of Wikipedia to one clause, in random order
MIXED = "mixed.txt"  # sentences of triples and pairs, and as many of Wikipedia
LESS = " less"  # of a teacher: without its first components


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        label: How the table calls it.
        recipe: Of the package.
        sets: Values put into it.
        text: The training text, a file of the prepared folder.
        start: The row whose trained encoder it begins from; "": the pretrained one.
        teachers: Models, or rows, that the objective `distil` learns from.
        seeds: Of the teachers that are rows, all of them; (): the row's own seed.
        labels: Whether labels were used, here or by a teacher: "no", "triples", "teacher".
    """

    label: str
    recipe: str
    sets: tuple[str, ...] = ()
    text: str = WIKIPEDIA
    start: str = ""
    teachers: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    labels: str = "no"


# SimCSE of 200,000 sentences, in batches of 128, at most 1,500 steps
_SIMCSE = ("train.batch_size=128", "train.steps=1500", "train.learning_rate=1e-4", "data.limit=200000")
_PLAIN = (*_SIMCSE, "data.repetition=0")
_SG = ("objective.sg.weight=0.1",)
_SSCL = ("objective.info-nce.weight=0", "objective.sscl.layers=[-2]")
_ATTENTION = ('model.pooler="attention(mask in means, mean in means, last=mask in means)"',)
_RANKING = ("objective.ranking.weight=1.0",)
_DENOISE = ("model.denoise=true",)
_TWO = ("""model.second_prompt='The sentence : "{text}" means {mask}.'""",)
_WHITENING = ("objective.whitening.weight=1.0",)
_LISTS = ("objective.distil.weight=1.0", "objective.distil.vectors=0")
_TRIPLES = ("train.batch_size=256", "train.steps=650", "dev.every=100", 'model.pooler="last @ mask in means"')
_MASKED = (*_TRIPLES, "model.head=none", "model.keep_head=false")
_DISTIL = ("train.steps=4000", "dev.every=500", "data.limit=1000000")
_LONGER = ("train.steps=5000", "train.betas=[0.9, 0.98]")  # with 0.999, 12 blocks fall and rise again at 3,500 steps
_LONG = ("data.limit=800000", "train.steps=10000", "train.epochs=20", "train.betas=[0.9, 0.98]")
_VIEWS = ("data.limit=250000", "train.steps=5000", "train.epochs=20", "train.betas=[0.9, 0.98]")
_MORE_VIEWS = ("data.limit=500000", "train.steps=8000", "train.epochs=20", "train.betas=[0.9, 0.98]")
_OTHER = ("data.limit=800000", "train.steps=6000", "train.epochs=20", "train.betas=[0.9, 0.98]")
_MEAN = ('model.pooler="last @ mean"',)
_JOINED = ('model.pooler="last @ mask in means | last @ mean in means"',)
_HEADED = (*_JOINED, "model.head=identity", "model.width=384", "model.keep_head=true")
_ROTATED = ('objective.distil.projection="rotation"',)
_DROPOUT = ("model.dropout=0.1", "train.warmup=0")
_ENSEMBLE = ("train.steps=2000", "dev.every=250", "data.limit=500000", "data.max_length=32")  # as its teachers
_SEEDS = (0, 1, 2)


def _simcse(label: str, *sets: str, **options: str | tuple[str, ...]) -> Row:
    return Row(label, "small-prompt-simcse", (*_SIMCSE, *sets), **options)  # type: ignore[arg-type]


def _distil(label: str, *sets: str, teachers: tuple[str, ...] = (MINILM,), text: str = WIKIPEDIA) -> Row:
    return Row(label, "small-prompt-distil", (*_DISTIL, *sets), text, teachers=teachers, labels="teacher")


def _mpnet(label: str, *sets: str, how: str = "") -> Row:
    return _distil(f"mask, {label}distilled from all-mpnet-base-v2{how}", *sets, teachers=(MPNET,))


_TEXTS = {
    CLAUSES: "sentences and clauses",
    SHUFFLED: "sentences and clauses in random order",
    BLEND: "sentences and clauses, two to one",
    MIXED: "sentences of NLI, Quora and captions, and as many of Wikipedia",
}


def _both(label: str, *sets: str, text: str = CLAUSES, pooled: str = "mask") -> Row:
    label = f"{pooled}, {label}distilled from both on {_TEXTS[text]}, rotated"
    return _distil(label, *_ROTATED, *sets, teachers=(MINILM, MPNET), text=text)


def _views(label: str, *sets: str, text: str = SHUFFLED) -> Row:
    """A row taught by the sets of views of both teachers that STS-B dev chose."""
    label = f"mask, {label}distilled from searched views of both, on {_TEXTS[text]}, rotated"
    return _distil(label, *_ROTATED, *sets, teachers=(MINILM_VIEWS, MPNET_VIEWS), text=text)


def _ensemble(
    label: str,
    start: str,
    *teachers: str,
    labels: str,
    text: str = CLAUSES,
    sets: tuple[str, ...] = _ROTATED,
    seeds: tuple[int, ...] = (),
) -> Row:
    """A row taught by several rows, none of which has seen more than it."""
    less = tuple(name + LESS for name in teachers)
    sets = (*_ENSEMBLE, *sets)
    return Row(label, "small-prompt-distil", sets, text, start=start, teachers=less, seeds=seeds, labels=labels)


def _labelled(name: str, start: str, begun_from: str, *, pair_steps: int) -> dict[str, Row]:
    """Rows begun from a student: triples, pairs, and triples after these pairs."""
    slow = (*_MASKED, "train.learning_rate=1e-4")
    pairs = (*_MASKED, f"train.steps={pair_steps}", "train.learning_rate=1e-4")
    triples, several = "mask, NLI triples", "mask, pairs of NLI, Quora and captions"
    after = "mask, those pairs, then NLI triples"
    begun = f"started from {begun_from}"
    return {
        f"nli-{name}": Row(f"{triples}, {begun}", "small-sup", slow, TRIPLES, start=start, labels="triples"),
        f"pairs-{name}": Row(f"{several}, {begun}", "small-sup-eq6", pairs, PAIRS, start=start, labels="pairs"),
        f"pairs-nli-{name}": Row(
            f"{after}, {begun}", "small-sup", slow, TRIPLES, start=f"pairs-{name}", labels="triples"
        ),
    }


WITHOUT_LABELS = {
    "cls": Row("[CLS], SimCSE", "small-simcse", _SIMCSE),
    "cls-plain": Row("[CLS] without a head, SimCSE", "small-simcse", (*_SIMCSE, "model.head=none")),
    "mean": Row(
        "mean of the tokens, SimCSE", "small-simcse", (*_SIMCSE, 'model.pooler="last @ mean"', "model.head=none")
    ),
    "mask": Row("mask of a prompt, SimCSE", "small-prompt-simcse", _PLAIN),
    "mask-clauses": Row("mask, sentences and clauses", "small-prompt-simcse", (*_PLAIN, "data.limit=400000"), CLAUSES),
    "mask-dropout": Row("mask, dropout 0.2", "small-prompt-simcse", (*_PLAIN, "model.dropout=0.2")),
    "mask-slow": Row("mask, lr 3e-5", "small-prompt-simcse", (*_PLAIN, "train.learning_rate=3e-5")),
    "cls-repetition": Row("[CLS] + repetition", "small-simcse", (*_SIMCSE, "data.repetition=0.32")),
    "repetition": _simcse("mask + repetition"),
    "sg": _simcse("mask + repetition + SG-OPT", *_SG),
    "sscl": _simcse("mask + repetition + SSCL", *_SSCL),
    "sscl-9": _simcse(
        "mask + repetition + SSCL, layer 9", "objective.info-nce.weight=0", "objective.sscl.layers=[9]",
        "objective.sscl.negative_weight=0.5",
    ),
    "attention": _simcse("mask + repetition + attention over layers", *_ATTENTION),
    "attention-train": _simcse(
        "mask + repetition + attention in training only", *_ATTENTION, 'model.inference="last @ mask in means"'
    ),
    "ranking": _simcse("mask + repetition + ranking of two passes", *_RANKING),
    "ranking-teacher": _simcse(
        "mask + repetition + ranking of two passes and of a SimCSE teacher", *_RANKING, *_LISTS,
        teachers=("repetition",),
    ),
    "ranking-two-teachers": _simcse(
        "mask + repetition + ranking of two passes and of two SimCSE teachers", *_RANKING, *_LISTS,
        teachers=("repetition", "sg"),
    ),
    "queue": _simcse("mask + repetition + momentum queue", "objective.info-nce.queue=320"),
    "denoise": _simcse("mask + repetition + denoising", *_DENOISE),
    "two-templates": _simcse("mask + repetition + two prompts", *_TWO),
    "two-templates-plain": _simcse("mask, two prompts", *_TWO, "data.repetition=0"),
    "promptbert": Row("mask, two prompts + denoising (PromptBERT)", "small-prompt-promptbert", _SIMCSE),
    "whitening": _simcse("mask + repetition + whitening", *_WHITENING),
    "all": _simcse(
        "mask + repetition + SG-OPT + SSCL + attention + ranking + denoising + two prompts + whitening", *_SG,
        *_RANKING, *_ATTENTION, *_DENOISE, *_TWO, *_WHITENING,
        "objective.sscl.weight=0.5",
        'objective.sscl.anchors="last"', "model.head=linear", "model.keep_head=true",
    ),
}  # fmt: skip
WITH_LABELS = {
    "nli-cls": Row(
        "[CLS], NLI triples", "small-sup", ("train.steps=650", "dev.every=100"), TRIPLES, labels="triples"
    ),
    "nli": Row("mask, NLI triples", "small-sup", _MASKED, TRIPLES, labels="triples"),
    "nli-start": Row(
        "mask, NLI triples, started from mask + repetition",
        "small-sup", (*_MASKED, "train.learning_rate=1e-4"), TRIPLES,
        start="repetition", labels="triples",
    ),
    "nli-mask": Row(
        "mask, NLI triples, started from mask", "small-sup", (*_MASKED, "train.learning_rate=1e-4"), TRIPLES,
        start="mask", labels="triples",
    ),
    **_labelled("ensemble", "ensemble-shuffled", "the student of four", pair_steps=1500),
    "pairs": Row(
        "mask, pairs of NLI, Quora and captions", "small-sup-eq6", (*_MASKED, "train.steps=1500"), PAIRS,
        labels="pairs",
    ),
    "pairs-nli": Row(
        "mask, those pairs, then NLI triples", "small-sup", (*_MASKED, "train.learning_rate=1e-4"), TRIPLES,
        start="pairs", labels="triples",
    ),
}  # fmt: skip
TAUGHT = {
    "distil-minilm": _distil("mask, distilled from all-MiniLM-L6-v2"),
    "distil-minilm-lists": _distil("mask, its similarities alone", "objective.distil.vectors=0"),
    "distil-minilm-vectors": _distil("mask, its vectors alone", 'objective.distil.similarities="none"'),
    "distil-minilm-mle": _distil("mask, its order and vectors", 'objective.distil.similarities="list-mle"'),
    "distil-mpnet": _mpnet(""),
    "distil-mpnet-6": _mpnet("6 blocks, ", "model.blocks=6"),
    "distil-mpnet-3": _mpnet("3 blocks, ", "model.blocks=3"),
    "distil-minilm-rotated": _distil("mask, distilled from all-MiniLM-L6-v2, rotated", *_ROTATED, *_LONGER),
    "distil-mpnet-rotated": _mpnet("", *_ROTATED, *_LONGER, how=", rotated"),
    "distil-mpnet-6-rotated": _mpnet("6 blocks, ", "model.blocks=6", *_ROTATED, *_LONGER, how=", rotated"),
    "distil-mpnet-3-rotated": _mpnet("3 blocks, ", "model.blocks=3", *_ROTATED, *_LONGER, how=", rotated"),
    "distil-two-rotated": _distil(
        "mask, distilled from both, rotated", "data.limit=800000", *_ROTATED, *_LONGER, teachers=(MINILM, MPNET)
    ),
    "distil-two-clauses": _both("", *_LONG),
    "distil-two-6-clauses": _both("6 blocks, ", "model.blocks=6", *_LONG),
    "distil-two-shuffled": _both("", *_LONG, text=SHUFFLED),
    "distil-two-6-shuffled": _both("6 blocks, ", "model.blocks=6", *_LONG, text=SHUFFLED),
    "distil-two-blend": _both("", *_LONG, text=BLEND),
    "distil-two-6-blend": _both("6 blocks, ", "model.blocks=6", *_LONG, text=BLEND),
    "distil-two-mean-blend": _both("", *_LONG, *_MEAN, text=BLEND, pooled="mean of the tokens"),
    "distil-two-6-mean-blend": _both("6 blocks, ", "model.blocks=6", *_LONG, *_MEAN, text=BLEND, pooled="mean"),
    "distil-two-joined-blend": _both("", *_LONG, *_JOINED, text=BLEND, pooled="mask and mean joined"),
    "distil-two-6-joined-blend": _both(
        "6 blocks, ", "model.blocks=6", *_LONG, *_JOINED, text=BLEND, pooled="mask and mean joined"
    ),
    "distil-two-headed-blend": _both("", *_LONG, *_HEADED, text=BLEND, pooled="mask and mean joined, 384 numbers"),
    "distil-two-6-headed-blend": _both(
        "6 blocks, ", "model.blocks=6", *_LONG, *_HEADED, text=BLEND, pooled="mask and mean joined, 384 numbers"
    ),
    "distil-two-mixed": _both("", *_OTHER, text=MIXED),
    "distil-two-6-mixed": _both("6 blocks, ", "model.blocks=6", *_OTHER, text=MIXED),
    "distil-two-last": _both("", *_VIEWS, text=SHUFFLED),  # as `distil-two-views`, by the last layers
    "distil-two-6-last": _both("6 blocks, ", "model.blocks=6", *_VIEWS, text=SHUFFLED),
    "distil-two-views": _views("", *_VIEWS),
    "distil-two-6-views": _views("6 blocks, ", "model.blocks=6", *_VIEWS),
    "distil-two-views-blend": _views("", *_MORE_VIEWS, text=BLEND),
    "distil-two-6-views-blend": _views("6 blocks, ", "model.blocks=6", *_MORE_VIEWS, text=BLEND),
    "distil-two": _distil("mask, distilled from both", "data.limit=800000", teachers=(MINILM, MPNET)),
    "distil-minilm-dropout": _distil("mask, with dropout and no warm-up, distilled from all-MiniLM-L6-v2", *_DROPOUT),
    "distil-minilm-warm": _distil("mask, with dropout, distilled from all-MiniLM-L6-v2", "model.dropout=0.1"),
    "distil-mpnet-dropout": _mpnet("with dropout and no warm-up, ", *_DROPOUT),
    "distil-mpnet-6-dropout": _mpnet("6 blocks, with dropout and no warm-up, ", "model.blocks=6", *_DROPOUT),
    "distil-mpnet-3-dropout": _mpnet("3 blocks, with dropout and no warm-up, ", "model.blocks=3", *_DROPOUT),
    "distil-mpnet-mean": _distil(
        "mean, distilled from all-mpnet-base-v2", 'model.pooler="last @ mean"', teachers=(MPNET,)
    ),
}
COMBINED = {  # chosen on STS-B dev alone; weights and settings that the rows above suggest
    "ranking-light": _simcse("mask + repetition + ranking × 0.1", "objective.ranking.weight=0.1"),
    "sg-light": _simcse("mask + repetition + SG-OPT × 0.03", "objective.sg.weight=0.03"),
    "sg-more": _simcse("mask + repetition + SG-OPT × 0.3", "objective.sg.weight=0.3"),
    "sg-ranking": _simcse("mask + repetition + SG-OPT + ranking × 0.1", *_SG, "objective.ranking.weight=0.1"),
    "sg-two": _simcse("mask + repetition + SG-OPT + two prompts", *_SG, *_TWO),
    "sg-denoise": _simcse("mask + repetition + SG-OPT + denoising", *_SG, *_DENOISE),
    "sg-slow": _simcse("mask + repetition + SG-OPT, lr 3e-5", *_SG, "train.learning_rate=3e-5"),
    "sg-fast": _simcse("mask + repetition + SG-OPT, lr 2e-4", *_SG, "train.learning_rate=2e-4"),
    "sg-large": _simcse("mask + repetition + SG-OPT, batches of 512", *_SG, "train.batch_size=512", "train.steps=780"),
    "sg-small": _simcse("mask + repetition + SG-OPT, batches of 64", *_SG, "train.batch_size=64"),
    "sg-cool": _simcse("mask + repetition + SG-OPT, temperature 0.03", *_SG, "objective.info-nce.temperature=0.03"),
    "sg-warm": _simcse("mask + repetition + SG-OPT, temperature 0.1", *_SG, "objective.info-nce.temperature=0.1"),
}
ENSEMBLES = {
    "ensemble": _ensemble(
        "mask, distilled from four such models without labels", "mask", "mask", "sg", "whitening", "two-templates",
        labels="no", text=WIKIPEDIA, sets=(),
    ),
    "ensemble-clauses": _ensemble(
        "mask, distilled from four such models without labels, on sentences and clauses",
        "mask", "mask", "sg", "whitening",
        "mask-clauses", labels="no", sets=(),
    ),
    "ensemble-rotated": _ensemble(
        "mask, distilled from four such models without labels, on sentences and clauses, rotated", "mask", "mask", "sg",
        "whitening", "mask-clauses", labels="no",
    ),
    "ensemble-shuffled": _ensemble(
        "mask, distilled from four such models without labels, on sentences and clauses in random order, rotated",
        "mask",
        "mask", "sg", "whitening", "mask-clauses", labels="no", text=SHUFFLED,
    ),
    "ensemble-again": _ensemble(
        "mask, distilled from three such students of four", "ensemble-shuffled", "ensemble-shuffled", labels="no",
        text=SHUFFLED, seeds=_SEEDS,
    ),
    "ensemble-pairs": _ensemble(
        "mask, distilled from six models of NLI triples, of pairs before, on their text and Wikipedia, rotated",
        "pairs-nli-ensemble", "nli-ensemble", "pairs-nli-ensemble", labels="triples", text=MIXED, seeds=_SEEDS,
        sets=(*_ROTATED, "data.limit=400000"),
    ),
}  # fmt: skip
_OWN = ("train.steps=3000", "train.epochs=20", "train.betas=[0.9, 0.98]", "dev.every=500", "data.limit=250000")
UNTRAINED = {  # distilled from a decoder that was not trained for embeddings; its views were selected on STS-B dev
    "decoder": Row(
        "mask, distilled from untrained views of SmolLM2-135M-Instruct, on sentences and clauses in random order, "
        "rotated",
        "small-prompt-distil", (*_OWN, *_ROTATED), SHUFFLED, teachers=(OWN_VIEWS,),
    ),
    **_labelled("decoder", "decoder", "the student of SmolLM2", pair_steps=1000),
}  # fmt: skip
TEMPERATURES, WIDTHS = (0.01, 0.02, 0.05, 0.1, 0.2), (48, 96, 192, 384)
_BASES = {"simcse": ("[CLS], SimCSE", "info-nce"), "sscl-simcse": ("[CLS], SSCL on SimCSE", "sscl")}
SWEEPS = {  # figures of SSCL's paper: temperature, and the width of a head that is kept
    **{
        f"{name}-t{value}": Row(
            f"{label}, temperature {value}", f"small-{name}", (*_SIMCSE, f"objective.{term}.temperature={value}")
        )
        for name, (label, term) in _BASES.items()
        for value in TEMPERATURES
    },
    **{
        f"{name}-d{width}": Row(
            f"{label}, {width} numbers", f"small-{name}",
            (*_SIMCSE, "model.head=linear", f"model.width={width}", "model.keep_head=true"),
        )
        for name, (label, _) in _BASES.items()
        for width in WIDTHS
    },
}  # fmt: skip
GROUPS = {
    "without-labels": WITHOUT_LABELS,
    "with-labels": WITH_LABELS,
    "taught": TAUGHT,
    "combined": COMBINED,
    "ensembles": ENSEMBLES,
    "untrained": UNTRAINED,
    "sweeps": SWEEPS,
}
ROWS: dict[str, Row] = {name: row for rows in GROUPS.values() for name, row in rows.items()}
NEEDED = {other.removesuffix(LESS) for row in ROWS.values() for other in (row.start, *row.teachers)} & set(ROWS)
