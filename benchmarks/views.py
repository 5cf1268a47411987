"""What the views of a model are worth that no training touched: prompt × token pooling × layer.

    python benchmarks/views.py prepare FOLDER              # the pairs and texts, from the data folder
    python benchmarks/views.py run FOLDER MODEL [--parts P]  # searches; on a GPU minutes, without one hours
    python benchmarks/views.py join FILE … --out FILE       # what several runs found, of other sets or parts
    python benchmarks/views.py tokens FOLDER MODEL --out FILE  # adds how long the prompts make a sentence
    python benchmarks/views.py apart FOLDER                # counts what choosing and reporting sentences share

The seven STS sets (test parts, Spearman over all pairs of a set); 350 pairs of each choose, its others report, five
random splits, in which pairs that share a sentence stay together; a reporting pair whose sentence differs from a
choosing one in case, spaces or punctuation only is counted. Text A is the sentences of STS-B dev that are in none of
the seven sets; text B is captions, questions, NLI and Wikipedia sentences, none of the seven sets; "choosing" is the
sentences of the pairs that choose. `stsb-dev` chooses on the pairs of STS-B dev that share no sentence with the seven
sets, once.
"""

import argparse
import json
import re
import time
from contextlib import suppress
from functools import cached_property, partial, reduce
from pathlib import Path

import numpy as np
import torch

from layerwise.errors import InputError
from layerwise.evidence import draw_splits, near_copies
from layerwise.mixes import Mean, parse_mix
from layerwise.search import Search, ViewScorer
from layerwise.search.graded_pairs import GradedPairs
from layerwise.search.metrics import as_metric
from layerwise.search.unlabelled import no_splits
from layerwise.search.views import ViewOptions

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
DEV, SPLITS, RESAMPLES, BAGS, TEXT_B = 350, 5, 300, 30, 750
FEWER_SPLITS = 2  # of the rows beside WHOLE, of fewer pairs and of costs
SIZES = (50, 100, 200, 350, 1000)
EITHER = "A or choosing"
COLUMNS = {  # in which forms a view may be taken, and the text that its mean and components are of
    "as they are": ((None,), ""),
    "mean, A": ((0,), "A"),
    "8, A": ((8,), "A"),
    "all forms, A": ((None, 0, 8), "A"),
    "five forms, A": ((None, 0, 2, 8, 32), "A"),
    "mean, B": ((0,), "B"),
    "8, B": ((8,), "B"),
    "mean, choosing": ((0,), ""),  # no text but the sentences of the choosing pairs
    "8, choosing": ((8,), ""),
    "all forms, choosing": ((None, 0, 8), ""),
    "all forms, A or choosing": ((None, 0, 8), EITHER),  # the choosing pairs decide
}
OF_EACH_ROW = ("as they are", "8, A", "all forms, A", "all forms, A or choosing")  # the others are of WHOLE rows alone
TRANSFER = ("trec", "mrpc", "sst2_sentences", "cr")
CLASSES, CLASS_ROWS = TRANSFER[:3], 1000  # which of them choose, by so many of their train rows
CLASS_POOLINGS = 6  # whose layers are all searched for classes
CRITERIA = ("repetition", "deletion", "neighbours", "dropout")
QUORA, NEIGHBOURS = 4000, 1000
WHOLE = ("layers, mean of the tokens", "plain, echo and knowledge", "one prompt, one pass", "all prompts")


def main() -> None:
    """Prepare, search, or join what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("prepare", "run", "join", "tokens", "apart"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", nargs="*")
    parser.add_argument("--parts", default="dev,rows,cost,few")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rows", help="of the table, or of `elsewhere`, with semicolons; all without it")
    parser.add_argument("--columns", default=";".join(COLUMNS), help="of the table's rows, with semicolons")
    parser.add_argument("--cells", help="of the table, as ROW/COLUMN with semicolons; all of these rows without it")
    parser.add_argument("--max-passes", type=int, help="of a set that STS-B dev chooses; any number without it")
    parser.add_argument("--without", default="", help="prompts that no search may take, with commas")
    parser.add_argument("--mix", help="a set of views, for the part `given`")
    parser.add_argument("--sample", type=int, help="score so many random pairs of each set; all of them without it")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.part == "prepare":
        prepare(options.folder)
        return
    if options.part == "apart":
        counts = apart(json.loads((options.folder / "views.json").read_text(encoding="utf-8")))
        print(json.dumps(counts, indent=1))
        (options.out or RESULTS / "views-apart.json").write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
        return
    if options.part == "join":
        files = [json.loads(file.read_text(encoding="utf-8")) for file in (options.folder, *map(Path, options.model))]
        options.out.write_text(json.dumps(reduce(joined, files), indent=1) + "\n", encoding="utf-8")
        return
    (model,) = options.model
    torch.backends.cuda.matmul.allow_tf32 = True
    name = Path(model).name if model != "default" else "all-MiniLM-L6-v2"
    out = options.out or RESULTS / f"views-{name}.json"
    columns, labels = options.columns.split(";"), options.rows and options.rows.split(";")
    cells = options.cells and [tuple(cell.split("/")) for cell in options.cells.split(";")]
    without = options.without.split(",")
    bench = Bench(options.folder, model, options.sets.split(","), labels, columns, cells, options.max_passes, without)
    if options.sample:
        bench.sample(options.sample)
    if options.mix:
        bench.give(options.mix)
    if options.part == "tokens":
        known = json.loads(out.read_text(encoding="utf-8"))
        out.write_text(json.dumps(known | {"tokens": bench.tokens}, indent=1) + "\n", encoding="utf-8")
        return
    protocol = {
        "model": name,
        "tokens": bench.tokens,
        "pairs": DEV,
        "splits": SPLITS,
        "resamples": RESAMPLES,
        "bags": BAGS,
        **({"max_passes": options.max_passes} if options.max_passes else {}),
        **({"without": without} if options.without else {}),
        **({"sample": options.sample} if options.sample else {}),
    }
    for result in bench.run(options.parts.split(",")):  # after every search, so that nothing is lost
        out.write_text(json.dumps(protocol | result, indent=1) + "\n", encoding="utf-8")


def apart(facts: dict) -> dict:
    """How many reporting pairs of each set share a sentence with a choosing pair, and with what is fitted or chosen on.

    `near_copies` differ from a choosing sentence in case, spaces or punctuation only and do report; `fitted_on` and
    `chosen_on` count the sentences of the sets that text A, text B and STS-B dev contain, by the same comparison.
    """
    from layerwise.postprocess import FittedOn

    sets = {}
    for name, rows in facts["sets"].items():
        left, right = rows["left"], rows["right"]
        texts = list(zip(left, right, strict=True))
        splits = draw_splits(len(rows["gold"]), DEV, SPLITS, seed=0, texts=texts)
        reporting = sum(len(test) for _, test in splits)
        copies = near_copies(splits, texts)
        sets[name] = {"reporting": reporting, "left_out": splits.left_out, "near_copies": copies}
    tested = list({text for rows in facts["sets"].values() for text in (*rows["left"], *rows["right"])})
    dev = [*facts["dev"]["left"], *facts["dev"]["right"]]
    seen = {
        name: int(FittedOn.of(texts, source=name).seen(tested).sum())
        for name, texts in {"A": facts["A"], "B": facts["B"], "stsb-dev": dev}.items()
    }
    return {"pairs": DEV, "splits": SPLITS, "sets": sets, "fitted_on": seen, "chosen_on": seen.pop("stsb-dev")}


def joined(first: dict, second: dict) -> dict:
    """Both, with what they have inside of each other's tables; of a number that both have, the second's."""
    both = {key: joined(first[key], second[key]) for key in first if isinstance(second.get(key), dict)}
    return first | second | both


def prepare(folder: Path) -> None:
    """Pairs and texts as one JSON file."""
    import pyarrow.parquet as pq

    from layerwise.data import data_folder, find_tasks, load_task
    from layerwise.postprocess import FittedOn

    def texts(path: str, *columns: str) -> list[str]:
        table = pq.read_table(data_folder() / "train" / path, columns=list(columns))
        return [text for column in columns for text in table.column(column).to_pylist()]

    sets = {}
    for name in SETS:
        (task,) = find_tasks([name])
        rows = load_task(task)
        rows = rows.of_role("test") if "test" in task.splits else rows
        sets[name] = {"left": rows.left, "right": rows.right, "gold": list(map(float, rows.labels))}
    tested = [text for rows in sets.values() for text in (*rows["left"], *rows["right"])]
    record = FittedOn.of(tested, source="the seven sets")
    dev = load_task(find_tasks(["stsb"])[0]).of_role("dev")
    clean = np.flatnonzero(~record.seen(dev.left) & ~record.seen(dev.right))
    both = list(dict.fromkeys([*dev.left, *dev.right]))
    text_a = [text for text, seen in zip(both, record.seen(both), strict=True) if not seen]
    random = np.random.default_rng(0)
    text_b = []
    for path, *columns in (
        ("flickr30k_captions_multi30k.parquet", "text"),
        ("quora_paraphrase_pairs.parquet", "anchor"),
        ("nli_triples_all.parquet", "anchor"),
        ("wiki1m.parquet", "text"),
    ):
        some = [text.strip() for text in dict.fromkeys(texts(path, *columns)) if 20 < len(text) < 250]
        drawn = [some[n] for n in random.permutation(len(some))[: 2 * TEXT_B]]
        text_b += [text for text, seen in zip(drawn, record.seen(drawn), strict=True) if not seen][:TEXT_B]
    picked = dev.pick(clean)
    quora = pq.read_table(data_folder() / "multitask" / "quora.parquet").to_pylist()
    quora = [row for row in quora if row["split"] == "dev"][:QUORA]
    articles = pq.read_table(data_folder() / "mteb_types" / "summarization_summeval.parquet", columns=["text"])
    following = [
        sentence
        for article in articles.column("text").to_pylist()
        for sentence in re.split(r"(?<=[.!?])\s+", article)
        if 20 < len(sentence) < 250
    ]
    transfer = {}
    for name in TRANSFER:
        table = pq.read_table(data_folder() / "transfer" / f"{name}.parquet").to_pydict()
        transfer[name] = {
            key: table[key] for key in table if key in ("text", "sentence1", "sentence2", "label", "split")
        }
    facts = {
        "sets": sets,
        "dev": {"left": picked.left, "right": picked.right, "gold": list(map(float, picked.labels))},
        "A": text_a,
        "B": text_b,
        "neighbours": [text for text, seen in zip(following, record.seen(following), strict=True) if not seen][
            :NEIGHBOURS
        ],
        "quora": {
            "left": [row["sentence1"] for row in quora],
            "right": [row["sentence2"] for row in quora],
            "gold": [float(row["label"]) for row in quora],
        },
        "transfer": transfer,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "views.json").write_text(json.dumps(facts), encoding="utf-8")
    print({name: len(rows["gold"]) for name, rows in sets.items()}, len(picked), len(text_a), len(text_b))


class Remembered:
    """The views of some texts, kept where the search computes, in half precision: a decoder's fill a GPU."""

    def __init__(self, encoder, poolings, device):
        self.encoder, self.poolings, self.device = encoder, poolings, device
        self.views, self.places = {}, {}

    def read(self, texts):
        """Read all views of texts, each once."""
        from layerwise.encoder import by_prompt, token_batches

        texts = list(dict.fromkeys(texts))
        self.places = {text: place for place, text in enumerate(texts)}
        encoder, layers = self.encoder, range(self.encoder.depth + 1)
        for prompt, names in by_prompt(self.poolings).items():
            for name in names:
                shape = (len(texts), len(layers), encoder.width)
                self.views[name] = torch.empty(shape, device=self.device, dtype=torch.float16)
            tokens = (encoder._sentences if prompt.is_plain else encoder.prompted(prompt))(texts)
            for batch in token_batches(tokens, budget=encoder.budget.tokens):
                with torch.inference_mode():
                    inputs = [tensor.to(self.device) for tensor in batch.padded(encoder.tokenizer.pad_token_id or 0)]
                    read = encoder.read(*inputs[:2], layers, names, *inputs[2:]).half()
                assert torch.isfinite(read).all(), f"{prompt}: views too large for half precision"
                for number, name in enumerate(names):
                    self.views[name][torch.from_numpy(batch.rows).to(self.device)] = read[:, number]
        return self

    def __call__(self, texts, names):
        """The views of some of the texts."""
        places = torch.tensor([self.places[text] for text in texts], device=self.device)
        return {name: self.views[name][places].float() for name in names}


class Bench:
    """One model on all sets."""

    def __init__(self, folder, model, sets, labels=None, columns=tuple(COLUMNS), cells=None, passes=None, without=()):
        from layerwise import LayerModel
        from layerwise.encoder import prompts_for
        from layerwise.search.view_cost import prices_of

        facts = json.loads((folder / "views.json").read_text())
        self.sets, self.labels, self.cells = {name: facts["sets"][name] for name in sets}, labels, cells
        self.passes = passes
        self.dev, self.quora, self.transfer = facts["dev"], facts["quora"], facts["transfer"]
        self.columns = {column: COLUMNS[column] for column in columns}
        self.text, self.following = facts["B"], facts["neighbours"]
        self.model = LayerModel.load(model)
        self.encoder, self.device = self.model.encoder, self.model.encoder.device
        (self.own,) = self.model.mix.poolings
        self.prompts = [prompt for prompt in prompts_for(self.encoder.tokenizer) if str(prompt) not in without]
        self.masked = self.encoder.tokenizer.mask_token is not None
        plain = ["mean", "cls", "max", "last"] if self.masked else ["mean", "last", "weighted-mean", "mean-but-first"]
        self.plain = list(dict.fromkeys([self.own, *plain]))
        self.by_prompt = {str(p): list(dict.fromkeys([f"{p.pooling} in {p}", f"mean in {p}"])) for p in self.prompts}
        self.all = [*self.plain, *(name for names in self.by_prompt.values() for name in names)]
        self.prices = prices_of(self.encoder, self.all, self.dev["left"])
        self.tokens = {"" if prompt.is_plain else str(prompt): of for prompt, of in self.prices.tokens.items()}
        self.texts, self.corpora = {name: facts[name] for name in ("A", "B")}, {}

    def sample(self, pairs):
        """Keep some random pairs of each set."""
        random = np.random.default_rng(0)
        for name, rows in self.sets.items():
            some = sorted(random.permutation(len(rows["gold"]))[:pairs].tolist())
            self.sets[name] = {key: [values[n] for n in some] for key, values in rows.items()}

    def give(self, text):
        """Score one set of views, so that no others are read."""
        self.given = parse_mix(text).resolve(self.encoder.depth)
        self.all = list(dict.fromkeys([self.own, *self.given.poolings]))

    def corpus(self, name):
        """Means and components of a text, whose views are not kept; None for no text."""
        if name and name not in self.corpora:
            self.corpora[name] = self.fitted(self.texts[name])
        return self.corpora.get(name)

    def fitted(self, texts):
        """Means and components of a text."""
        from layerwise.encoder import by_prompt
        from layerwise.search.view_fit import Corpus

        corpus = Corpus(texts, None, self.device)
        for names in by_prompt(self.all).values():
            corpus._encode = Remembered(self.encoder, names, self.device).read(corpus.texts)
            for most in {less[-1] for less, _ in COLUMNS.values() if less[-1] is not None}:
                corpus.fit(names, most)
        return corpus

    def rows(self):
        """The poolings of each row of the table, and the most passes."""
        if self.masked:
            one = self.by_prompt["means"]
            return {
                "layers, mean of the tokens": ([self.own], None),
                "layers, all poolings": (self.plain, None),
                "mean and one mask prompt": ([self.own, *one], None),
                "one prompt, one pass": (self.all, 1),
                "all prompts": (self.all, None),
            }
        echo, eol, knowledge = (self.by_prompt[name] for name in ("echo", "eol", "knowledge"))
        return {
            "layers, mean of the tokens": (["mean"], None),
            "layers, all poolings": (self.plain, None),
            "echo": (echo, None),
            "eol": (eol, None),
            "knowledge": (knowledge, None),
            "situation": (self.by_prompt["situation"], None),
            "plain and situation": (["mean", *self.by_prompt["situation"]], None),
            "plain, echo and knowledge": (["mean", *echo, *knowledge], None),
            "one prompt, one pass": (self.all, 1),
            "all prompts": (self.all, None),
        }

    def run(self, parts):
        """The parts that were asked for, set by set."""
        result = {part: {} for part in parts}
        began = time.perf_counter()
        templates = {name: p.template for name, p in zip(self.by_prompt, self.prompts, strict=True)}
        for part in [part for part in parts if part in ("elsewhere", "unlabelled")]:
            for found in getattr(self, f"part_{part}")():
                result[part] = found
                yield result | {"prompts": templates, "seconds": time.perf_counter() - began}
            print(f"{part}: {time.perf_counter() - began:.0f} s", json.dumps(result[part]), flush=True)
        of_sets = [part for part in parts if part not in ("elsewhere", "unlabelled")]
        poolings = self.all
        if of_sets == ["rows"] and self.labels:
            poolings = list(dict.fromkeys([self.own, *(one for label in self.labels for one in self.rows()[label][0])]))
        for name, rows in self.sets.items() if of_sets else ():
            views = self.read(rows, poolings)  # of one set at a time: those of a decoder fill a GPU
            print(f"views of {name}: {time.perf_counter() - began:.0f} s", flush=True)
            for part in of_sets:
                for _ in getattr(self, f"part_{part}")(name, rows, views, result[part]):
                    yield result | {"prompts": templates, "seconds": time.perf_counter() - began}
                print(f"{part} {name}: {time.perf_counter() - began:.0f} s", flush=True)
                for label, cells in result[part].items():
                    shown = {"": cells} if name in cells else cells
                    print("  ", label, {column: round(100 * cell[name]["test"], 1) for column, cell in shown.items()})

    def read(self, rows, poolings):
        """The views of pairs."""
        return Remembered(self.encoder, poolings, self.device).read([*rows["left"], *rows["right"]])

    def search(
        self, views, rows, poolings, *, less=(None,), corpus="", dev=DEV, splits=SPLITS, metric="spearman", **options
    ):
        """What a search of views selects; without `dev` all pairs choose."""
        fit_on = "either" if corpus == EITHER else "corpus"
        text = self.corpus("A" if corpus == EITHER else corpus)
        metric = as_metric(metric)
        pairs = GradedPairs.of(
            rows["left"], rows["right"], rows["gold"], metric=metric, encode=views, device=self.device
        )
        given = ViewOptions(tuple(poolings), remove=less, fit_on=fit_on, **{"n_bootstraps": BAGS, **options})
        parts = draw_splits(len(pairs), dev, splits, 0, texts=pairs.unit_texts) if dev else no_splits(len(pairs))
        scorer = ViewScorer(pairs, parts, given, self.prices, self.own, text)
        return Search(n_resamples=RESAMPLES).fit_scorer(scorer).selection_

    def part_rows(self, name, rows, views, result):
        """Every row and column of the table."""
        for label, (poolings, passes) in self.rows().items():
            if self.labels and label not in self.labels:
                continue
            for column, (less, corpus) in self.columns.items():
                if (label not in WHOLE or passes) and column not in OF_EACH_ROW:
                    continue
                if self.cells and (label, column) not in self.cells:
                    continue
                splits = SPLITS if label in WHOLE else FEWER_SPLITS
                options = {"less": less, "corpus": corpus, "max_passes": passes, "splits": splits}
                search = self.search(views, rows, poolings, **options)
                cell = facts_of(search, gain=True)
                result.setdefault(label, {}).setdefault(column, {})[name] = cell
                yield

    def part_few(self, name, rows, views, result):
        """Fewer and more pairs that choose, and what the verdict says."""
        for size in SIZES:
            if size + 100 > len(rows["gold"]):
                continue
            search = self.search(views, rows, self.all, dev=size, splits=FEWER_SPLITS)
            result.setdefault(str(size), {})[name] = facts_of(search, gain=True)
            yield

    def part_cost(self, name, rows, views, result):
        """The best set within some blocks of one pass, and within two passes."""
        depth = self.encoder.depth
        limits = {f"{blocks} of one pass": (blocks / depth, 1) for blocks in sorted({1, depth // 6, depth // 2, depth})}
        for label, (cost, passes) in (limits | {"two passes": (2.0, 2)}).items():
            limited = {"max_cost": cost, "max_passes": passes, "splits": FEWER_SPLITS}
            search = self.search(views, rows, self.all, **limited)
            result.setdefault(label, {})[name] = facts_of(search) | {"cost": vars(search.chosen.cost)}
            yield

    @cached_property
    def by_dev(self):
        """What the clean pairs of STS-B dev choose, once for all sets."""
        chosen, views = {}, self.read(self.dev, self.all)
        for column, (less, corpus) in self.columns.items():
            options = {"less": less, "corpus": corpus, "max_passes": self.passes}
            chosen[column] = self.search(views, self.dev, self.all, dev=None, **options).chosen
        return chosen

    def whole(self, views, rows):
        """A fitted search, which scores any mix on all pairs of a set."""
        return self.search(views, rows, [self.own], splits=1, dev=10, n_bootstraps=0).scorer

    @property
    def last(self):
        """The last layer by the model's own pooling."""
        return Mean.of(self.encoder.depth, pooling=self.own)

    def sts(self, mix):
        """The average score of a mix on the seven sets."""
        used = list(dict.fromkeys([self.own, *mix.poolings]))
        return float(np.mean([self.whole(self.read(rows, used), rows).score(mix) for rows in self.sets.values()]))

    def part_dev(self, name, rows, views, result):
        """The sets that STS-B dev chose, on another set."""
        search = self.whole(views, rows)
        for column, best in self.by_dev.items():
            cell = {"test": search.score(best.mix), "mix": str(best.mix), "dev": best.dev}
            result.setdefault(column, {})[name] = cell
        result.setdefault("last layer", {})[name] = {"test": search.score(self.last), "mix": str(self.last)}
        yield

    def part_given(self, name, rows, views, result):
        """The set of `--mix`, beside the last layer."""
        search = self.whole(views, rows)
        for label, mix in {"last layer": self.last, "given": self.given}.items():
            result.setdefault(label, {})[name] = {"test": search.score(mix), "mix": str(mix)}
        yield

    def part_elsewhere(self):
        """The sets that STS-B dev, Quora and transfer tasks chose, each on all of them."""
        every = np.arange(len(self.quora["gold"]))
        choosing = np.random.default_rng(0).permutation(every)[:DEV]
        some = {key: [values[n] for n in choosing] for key, values in self.quora.items()}
        seen = {*some["left"], *some["right"]}
        reporting = [n for n in every if self.quora["left"][n] not in seen and self.quora["right"][n] not in seen]
        mixes = {"last layer": lambda: self.last}
        mixes |= {f"chosen on STS-B dev, {column}": partial(self.chosen_by_dev, column) for column in self.columns}
        mixes |= {"chosen on Quora's duplicates": partial(self.by_quora, some)}
        mixes |= {f"chosen on {name}": partial(self.by_classes, name) for name in CLASSES}
        result = {}
        for label, chosen in mixes.items():
            if self.labels and label not in self.labels:
                continue
            mix = chosen()
            result[label] = {"mix": str(mix), "sts": self.sts(mix), **self.of_quora(mix, reporting)}
            result[label] |= {name: self.accuracy(mix, name) for name in self.transfer}
            yield result

    def chosen_by_dev(self, column):
        """The set that STS-B dev chose."""
        return self.by_dev[column].mix

    def by_quora(self, pairs):
        """The set that some of Quora's pairs choose."""
        views = self.read(pairs, self.all)
        return self.search(views, pairs, self.all, dev=None, metric="cosine_ap").chosen.mix

    def embed(self, mix, texts):
        """Vectors of length 1; an empty text is a full stop, as in `load_task`."""
        return self.model.replaced(mix=mix).encode([text.strip() or "." for text in texts], normalize_embeddings=True)

    def by_classes(self, name):
        """One or two views by which rows that train a task tell its classes best, the second added to the first.

        The last layer of every pooling comes first; the best of them are searched in all layers.
        """
        from layerwise.search import ClassProtocol, ClassRows, ClassScorer, Space

        task = self.transfer[name]
        rows = [n for n, split in enumerate(task["split"]) if split == "train"]
        rows = sorted(np.random.default_rng(0).permutation(rows)[:CLASS_ROWS])
        columns = [[task[key][n] for n in rows] for key in ("text", "sentence1", "sentence2") if key in task]
        read = Remembered(self.encoder, self.all, self.device).read(text for texts in columns for text in texts)
        labels = [task["label"][n] for n in rows]

        def scored(views, space):
            """The accuracies of sets of (pooling, layer), best first: of the lists in `views`, as layers of a model."""
            sides = []
            for texts in columns:
                of_texts = read(texts, dict.fromkeys(pooling for each in views.values() for pooling, _ in each))
                unit = {name: torch.nn.functional.normalize(part, dim=-1) for name, part in of_texts.items()}
                stacked = {name: torch.stack([unit[p][:, n] for p, n in each], 1) for name, each in views.items()}
                sides.append({name: side.cpu().numpy() for name, side in stacked.items()})
            task = ClassRows.of(sides[0], labels, sides[1] if len(sides) > 1 else None, self.device)
            protocol = ClassProtocol(outer=1, inner=3)
            return ClassScorer(task, protocol.splits(len(task)), protocol, space).table

        depth, single = self.encoder.depth, Space.exactly(1)
        last = scored({name: [(name, self.encoder.depth)] for name in self.all}, single)
        layers = {row.pooling: [(row.pooling, n) for n in range(depth + 1)] for row in last[:CLASS_POOLINGS]}
        best = scored(layers, single)[0]
        first = (best.pooling, *best.layers)
        pair = scored({name: [first, *each] for name, each in layers.items()}, Space(2, 2, include=(0,)))[0]
        second = layers[pair.pooling][pair.layers[1] - 1]  # the first again, if no other helps
        of = {}
        for pooling, layer in dict.fromkeys([first, second]):
            of.setdefault(pooling, []).append(str(layer))
        parts = [f"{','.join(layers)} @ {pooling}" for pooling, layers in of.items()]
        return parse_mix(f"views({'; '.join(parts)}; unit)")

    def of_quora(self, mix, rows):
        """How well pairs of questions tell duplicates, and how well a question finds its duplicates among all."""
        from layerwise.metrics import ranked_scores
        from layerwise.search.metrics import as_metric

        questions = sorted({self.quora[side][n] for side in ("left", "right") for n in rows})
        place = {question: number for number, question in enumerate(questions)}
        vectors = torch.from_numpy(self.embed(mix, questions)).to(self.device)
        left, right = ([place[self.quora[side][n]] for n in rows] for side in ("left", "right"))
        cosines = (vectors[left] * vectors[right]).sum(1).double().cpu()
        score = as_metric("cosine_ap")(np.array(self.quora["gold"])[rows], torch.device("cpu"))
        duplicates = {}
        for one, other, gold in zip(left, right, np.array(self.quora["gold"])[rows], strict=True):
            if gold and one != other:
                duplicates.setdefault(one, {})[other] = 1.0
                duplicates.setdefault(other, {})[one] = 1.0
        asked = sorted(duplicates)
        similarities = vectors[asked] @ vectors.T
        similarities[torch.arange(len(asked)), asked] = -torch.inf  # not the question itself
        hits = similarities.topk(10).indices.cpu().numpy()
        found = ranked_scores(hits, [duplicates[one] for one in asked], 10)["ndcg@10"]
        return {"quora": float(score(cosines[None])[0]), "quora_retrieval": float(found.mean())}

    def accuracy(self, mix, name):
        """Of a logistic regression on a transfer task, SentEval's protocol."""
        from layerwise.classify import evaluate_classes, pair_features

        rows = self.transfer[name]
        if "text" in rows:
            features = self.embed(mix, rows["text"])
        else:
            features = pair_features(self.embed(mix, rows["sentence1"]), self.embed(mix, rows["sentence2"]))
        of = np.array(rows["split"])
        splits = {role: np.flatnonzero(of == role) for role in ("train", "dev", "test") if (of == role).any()}
        return evaluate_classes(features, rows["label"], splits=splits or None, device=self.device).accuracy

    def part_unlabelled(self):
        """Views chosen without labels: by each criterion, and how good those are that are taken for granted."""
        depth, result = self.encoder.depth, {}
        for label, mix in {
            "last layer": self.last,
            "middle layer": Mean.of(depth // 2, pooling=self.own),
            "all layers": Mean.of(*range(depth + 1), pooling=self.own),
        }.items():
            result[label] = {"mix": str(mix), "sts": self.sts(mix)}
        for criterion in CRITERIA:
            texts = self.following if criterion == "neighbours" else self.text
            for label, poolings in {"layers": [self.own], "views": self.all}.items():
                with suppress(InputError):  # many models have no dropout
                    found = self.unlabelled(texts, poolings, criterion)
                    (proposal,), last = found.proposals, found.last
                    cell = {"mix": str(proposal.mix), "separation": proposal.separations[criterion]}
                    cell |= {"sts": self.sts(proposal.mix), "last separation": last[criterion]}
                    result[f"{criterion}, {label}"] = cell
                yield result
        result["agreement"] = self.agreement()
        yield result

    def unlabelled(self, texts, poolings, criterion):
        """What a criterion, or all of them, propose, and the last layer's separation by each, as the command finds."""
        search = Search(poolings=list(poolings), scale="unit", criterion=criterion, n_bootstraps=BAGS)
        return search.fit(self.model, texts).selection_.criteria

    def agreement(self):
        """The rule of `--no-labels all` on one text: a set that no criterion has worse, or the last layer."""
        found = self.unlabelled(self.following, self.all, "all")
        mix = found.agreed.mix if found.agreed else self.last
        separations = {proposal.criterion: dict(proposal.separations) for proposal in found.proposals}
        chosen = {"mix": str(mix), "criterion": found.agreed and found.agreed.criterion, "sts": self.sts(mix)}
        return chosen | {"separations": separations, "last separations": dict(found.last)}


def facts_of(selection, *, gain=False):
    """A search's scores, choices and counts."""
    facts = {
        "test": selection.chosen.test,
        "dev": selection.chosen.dev,
        "last": selection.last.test,
        "tests": [choice.best.test for choice in selection.choices],
        "lasts": [choice.last.test for choice in selection.choices],
        "mixes": [str(choice.best.mix) for choice in selection.choices],
        "reporting": [len(test) for _, test in selection.splits],
        "left_out": selection.splits.left_out,
        "near_copies": selection.scorer.near_copies,
    }
    if gain:
        facts["gain"] = vars(selection.gain)
        facts["keeps_last"] = not selection.verdict.is_gain
        facts["used"] = selection.verdict.use.test
    return facts


if __name__ == "__main__":
    main()
