"""The rows of the multitask comparison: the recipe cs224n with one thing changed from the default row.

The default row is the recipe with `BASE` put in: the plainest choice of everything, on SST-5, Quora and STS. Every row
has as many steps; a row that draws one task a step takes as many rows in it as the others take of all three. "final"
is the recipe as it is shipped, with the rate of `FINAL_RATES`.
"""

from dataclasses import dataclass

SEEDS = (0, 1, 2)
ENCODERS = ("wiki-mlm-12x384", "all-MiniLM-L6-v2")
FINAL_ENCODERS = (*ENCODERS, "all-mpnet-base-v2")  # the final row is of three
THREE = ("sst", "quora", "sts")
FOUR = (*THREE, "cfimdb")
DEFAULT = "default"
BASE = (
    'model.pooler="last @ mean"',
    "mixing.iteration=cycling",
    "mixing.temperature=1.0",
    "mixing.weights=equal",
    "objective.sst.head=linear",
    "objective.quora.head=linear",
    "objective.quora.features=difference-sum",
    "objective.quora.dropout=0.3",
    "objective.sts.head=cosine",
    "objective.sts.weight=1.0",
    "train.steps=500",
    "train.batch_size=32",
    "train.warmup=0.1",
    "train.max_grad_norm=1.0",
    "dev.every=250",
)
RATES = {"wiki-mlm-12x384": "2e-4", "all-MiniLM-L6-v2": "2e-4", "all-mpnet-base-v2": "3e-5"}  # of all rows but final
FINAL_RATES = {"wiki-mlm-12x384": "1e-4", "all-MiniLM-L6-v2": "1e-4", "all-mpnet-base-v2": "4e-5"}
ONE_TASK_A_STEP = "train.batch_size=96"
ADDED = "objective.sst.contrast=1.0"


@dataclass(frozen=True)
class Row:
    """What a row puts into the default row, and what the paper says for it.

    Args:
        label: How the table calls it.
        group: The comparison it belongs to.
        sets: Put into the recipe, after `BASE`.
        tasks: The others are left out.
        based: Start from the default row; else from the recipe as it is shipped.
        paper: The paper's own figure, by its name.
    """

    label: str
    group: str
    sets: tuple[str, ...] = ()
    tasks: tuple[str, ...] = THREE
    based: bool = True
    paper: str = ""


HEADS, FEATURES, ITERATION = "heads (table 2)", "pair features (table 3)", "iteration (table 4)"
WEIGHTS, CONTRAST, VIEWS = "weights (table 5)", "contrast on SST-5 (table 6)", "second view's dropout (figure 1)"
TUNING, POOLER, SINGLE, FINAL = "what is trained (table 7)", "shared pooler", "one task alone", "final"
STEPS = "step by step (table 8)"
GROUPS = (HEADS, FEATURES, ITERATION, WEIGHTS, CONTRAST, VIEWS, TUNING, POOLER, STEPS)
_PLAIN, _UNCLIPPED = "objective.quora.features=concat", "train.max_grad_norm=0.0"
_ATTENTION = 'model.pooler="attention(mean, mean)"'

ROWS = {  # the longest first: a long run that begins last is waited for
    "final": Row("the recipe as shipped", FINAL, tasks=FOUR, based=False, paper="SST .441, Quora .675, STS .269"),
    "four": Row("CFIMDB trained as well", SINGLE, tasks=FOUR),
    "single-cfimdb": Row("CFIMDB alone", SINGLE, tasks=("cfimdb",)),
    "contrast-all": Row(
        "added to all three, weight 0.1", CONTRAST, tuple(f"objective.{task}.contrast=0.1" for task in THREE)
    ),
    "contrast": Row("added, weight 1", CONTRAST, (ADDED,), paper="SST .441"),
    "contrast-0.1": Row("added, weight 0.1", CONTRAST, ("objective.sst.contrast=0.1",)),
    "contrast-alone": Row("alone", CONTRAST, (ADDED, "objective.sst.supervised=false"), paper="SST .402"),
    "view-0.05": Row("0.05", VIEWS, (ADDED, "objective.sst.contrast_dropout=0.05")),
    "view-0.2": Row("0.2", VIEWS, (ADDED, "objective.sst.contrast_dropout=0.2")),
    "view-0.3": Row("0.3", VIEWS, (ADDED, "objective.sst.contrast_dropout=0.3")),
    DEFAULT: Row("the default row", ""),
    "mlp": Row("three layers", HEADS, ("objective.sst.head=mlp", "objective.quora.head=mlp"), paper="SST .319"),
    "mlp-inverse": Row(
        "three layers, inverse size", HEADS,
        ("objective.sst.head=mlp", "objective.quora.head=mlp", "mixing.weights=inverse-size"), paper="SST .345",
    ),
    "mlp-sts": Row(
        "STS: three layers on all features", HEADS, ("objective.sts.head=mlp", "objective.sts.features=all")
    ),
    "concat": Row("[u; v]", FEATURES, ("objective.quora.features=concat",), paper="Quora .379"),
    "all": Row("[u; v; \\|u−v\\|; u·v]", FEATURES, ("objective.quora.features=all",)),
    "padding": Row("padding", ITERATION, ("mixing.iteration=padding",), paper="mean .240"),
    "truncating": Row("truncating", ITERATION, ("mixing.iteration=truncating",), paper="mean .225"),
    "proportional": Row("proportional", ITERATION, ("mixing.iteration=proportional", ONE_TASK_A_STEP)),
    "temperature": Row(
        "temperature 2", ITERATION, ("mixing.iteration=temperature", "mixing.temperature=2.0", ONE_TASK_A_STEP)
    ),
    "inverse": Row("inverse size", WEIGHTS, ("mixing.weights=inverse-size",), paper="overall .466"),
    "given": Row("given: STS 0.25", WEIGHTS, ("mixing.weights=given", "objective.sts.weight=0.25")),
    "learned": Row(
        "learned, at the encoder's rate: hardly moved", WEIGHTS, ("mixing.weights=learned", "mixing.learned_rate=2e-4")
    ),
    "learned-own-rate": Row("learned", WEIGHTS, ("mixing.weights=learned",)),
    "unclipped": Row("equal, gradients not clipped", WEIGHTS, (_UNCLIPPED,)),
    "cls": Row("cls", POOLER, ('model.pooler="last @ cls"',)),
    "mix": Row("mean of the last four layers", POOLER, ('model.pooler="last-4 @ mean"',)),
    "attention": Row("attention over layers", POOLER, (_ATTENTION,)),
    "attention-4e-4": Row("attention over layers, rate 4e-4", POOLER, (_ATTENTION, "train.learning_rate=4e-4")),
    "frozen": Row(
        "heads alone (pretrain)", TUNING, ("mixing.frozen_encoder=true", "train.learning_rate=1e-3"),
        paper="SST .409",
    ),
    "step-1": Row(
        "linear heads on [u; v], no clipping", STEPS,
        (_PLAIN, "objective.sts.head=linear", "objective.sts.features=concat", _UNCLIPPED), paper="overall .390",
    ),
    "step-2": Row("… STS by cosine", STEPS, (_PLAIN, _UNCLIPPED), paper="overall .393"),
    "step-3": Row(
        "… Quora by [\\|u−v\\|; \\|u+v\\|], SST-5 by three layers", STEPS, ("objective.sst.head=mlp", _UNCLIPPED),
        paper="overall .424",
    ),
    "step-4": Row(
        "… clipping, inverse size, contrast on SST-5", STEPS,
        ("objective.sst.head=mlp", "mixing.weights=inverse-size", ADDED), paper="overall .583 (its test)",
    ),
    "single-sst": Row("SST-5 alone", SINGLE, tasks=("sst",)),
    "single-quora": Row("Quora alone", SINGLE, tasks=("quora",)),
    "single-sts": Row("STS alone", SINGLE, tasks=("sts",)),
}  # fmt: skip
ALSO = {  # what the default row is in each comparison, and the paper's figure
    HEADS: ("one linear layer", "SST .316"),
    FEATURES: ("[\\|u−v\\|; \\|u+v\\|]", "Quora .455"),
    ITERATION: ("cycling", "mean .257"),
    WEIGHTS: ("equal", "overall .424"),
    CONTRAST: ("none", ""),
    TUNING: ("everything (fine-tuning)", "SST .530"),
    POOLER: ("mean", ""),
}


def encoders_of(row: str) -> tuple[str, ...]:
    """Those that a row is trained with."""
    return FINAL_ENCODERS if row == "final" else ENCODERS


def sets_of(row: Row, encoder: str) -> list[str]:
    """What a row puts into the shipped recipe for an encoder."""
    if not row.based:
        rate = FINAL_RATES.get(encoder)
        return [*([f"train.learning_rate={rate}"] if rate else []), *row.sets]
    return [*BASE, f"train.learning_rate={RATES.get(encoder, '1e-4')}", *row.sets]
