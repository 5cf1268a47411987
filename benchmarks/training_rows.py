"""The rows of the training table: recipes of the package, with what differs from them."""

from dataclasses import dataclass

SEEDS = (0, 1, 2)
MEAN = ('model.pooler="last @ mean"', "model.head=none")  # all-MiniLM-L6-v2's own embedding, too


@dataclass(frozen=True)
class Row:
    """One row: a recipe, values put into it, and how the table calls it. `also` scores the model without its pooler."""

    label: str
    recipe: str
    sets: tuple[str, ...] = ()
    encoder: str = "wiki-mlm-12x384"
    also: str = ""


ROWS = {
    "simcse": Row("SimCSE", "small-simcse"),
    "sg": Row("SG (base)", "small-sg"),
    "sg-opt1": Row("SG, opt1", "small-sg-opt1"),
    "sg-opt2": Row("SG, opt2", "small-sg-opt2"),
    "sg-opt": Row("SG-OPT (opt3)", "small-sg-opt"),
    "sscl-simcse": Row("SSCL-SimCSE, layer 11", "small-sscl-simcse"),
    "sscl-progressive": Row("progressive SSCL, layers 11 and 10", "small-sscl-progressive"),
    "sscl-bert-cls": Row("SSCL-BERT, cls", "small-sscl-bert-cls"),
    "sscl-bert-avg": Row("SSCL-BERT, avg", "small-sscl-bert-avg"),
    "lap-unsup": Row("LayerAttPooler", "small-lap-unsup", also="last @ cls"),
    "diffcse": Row("DiffCSE", "small-diffcse"),
    "diffcse-lap": Row("DiffCSE with LayerAttPooler", "small-diffcse-lap", also="last @ cls"),
    "sup-eq6": Row("eq. 6, CLS", "small-sup-eq6"),
    "lap-sup-eq6": Row("eq. 6, LayerAttPooler", "small-lap-sup-eq6", also="last @ cls"),
    "sup": Row("eq. 8, CLS", "small-sup"),
    "lap-sup": Row("eq. 8, LayerAttPooler", "small-lap-sup", also="last @ cls"),
    "sg-simcse": Row("SG-OPT (weight 0.1) and SimCSE", "small-sg-simcse"),
    "sg-simcse-equal": Row("SG-OPT and SimCSE, equal weights", "small-sg-simcse", ("objective.sg.weight=1.0",)),
    "stsb-simcse": Row(
        "SimCSE on SG's text, as in the combination",
        "small-sg-simcse",
        ("objective.sg.weight=0",),
    ),
    "simcse-mean": Row("SimCSE, mean pooling, no head", "small-simcse", MEAN),
    "sscl-mean": Row("SSCL-SimCSE, layer 11, mean pooling, no head", "small-sscl-simcse", MEAN),
    "sscl-sup": Row("eq. 8, CLS and SSCL", "small-sup", ('objective.sscl.anchors="last"', "objective.sscl.weight=0.1")),
    "lap-sscl-sup": Row("eq. 8, LayerAttPooler and SSCL", "small-lap-sscl-sup", also="last @ cls"),
    "minilm-sg-opt": Row("SG-OPT from all-MiniLM-L6-v2", "small-sg-opt", MEAN[:1], encoder="all-MiniLM-L6-v2"),
    "minilm-sg": Row("SG from all-MiniLM-L6-v2", "small-sg", MEAN[:1], encoder="all-MiniLM-L6-v2"),
}
