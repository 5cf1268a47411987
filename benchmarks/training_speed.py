"""Training speed at BERT-base's shape: sentences a second here and in sentence-transformers, in one run.

    python benchmarks/training_speed.py [--steps 200] [--repeats 3] [--sentences 40000]
    python benchmarks/training_speed.py --terms [--texts FILE] [--tokenizer FOLDER]    # beside SimCSE's step alone

The model is BERT-base's shape with random weights (speed does not depend on them), batch 64, two dropout views,
sentences cut at 32 tokens, bf16. The peer is sentence-transformers' own trainer with MultipleNegativesRankingLoss on
the same sentences as pairs of equals. Times are of the steps after a warm-up, the GPU waited for at both ends, calls in
turn. Then the objectives that read layers, each as a ratio to SimCSE's step. `--terms` measures those of the mask token
of a prompt, each as a ratio to SimCSE by that token: a teacher's vectors are computed once, before the steps.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from measure import machine, shared_folder, write_result

WARM = 40
BATCH = 64
MASKED, TEACHER = "SimCSE by the mask token of a prompt", "the model itself"

OBJECTIVES: dict[str, dict[str, Any]] = {
    "SimCSE": {"model": {"head": "mlp"}, "objective": [{"name": "info-nce"}]},
    "SimCSE, no CUDA graphs, no buckets": {
        "model": {"head": "mlp"},
        "objective": [{"name": "info-nce"}],
        "data": {"bucket": False},
        "train": {"cuda_graphs": False},
    },
    "SSCL-SimCSE": {"model": {"head": "mlp"}, "objective": [{"name": "sscl", "layers": [-2]}]},
    "progressive SSCL": {"model": {"head": "mlp"}, "objective": [{"name": "sscl", "layers": [-2, -3]}]},
    "LayerAttPooler": {
        "model": {"head": "mlp", "pooler": "attention(cls, mean, last=cls)", "keep_head": True},
        "objective": [{"name": "info-nce"}],
    },
    "SG-OPT, cached views": {"model": {"freeze": ["embeddings"]}, "objective": [{"name": "sg"}]},
    "SG-OPT, the copy runs along": {
        "model": {"freeze": ["embeddings"]},
        "objective": [{"name": "sg", "dropout": True}],
    },
}
_MASK = {"pooler": "last @ mask in means", "head": "none"}
_SIMCSE = {"name": "info-nce"}
TERMS: dict[str, dict[str, Any]] = {
    MASKED: {"model": _MASK, "objective": [_SIMCSE]},
    "+ ranking of two passes": {"model": _MASK, "objective": [_SIMCSE, {"name": "ranking"}]},
    "+ a teacher's similarities": {
        "model": _MASK,
        "objective": [_SIMCSE, {"name": "distil", "teacher": TEACHER, "vectors": 0}],
    },
    "a teacher's similarities and vectors alone": {
        "model": _MASK,
        "objective": [{"name": "distil", "teacher": TEACHER}],
    },
    "+ word repetition": {"model": _MASK, "objective": [_SIMCSE], "data": {"repetition": 0.32}},
    "+ momentum queue": {"model": _MASK, "objective": [_SIMCSE | {"queue": 160}]},
    "+ group whitening": {"model": _MASK, "objective": [_SIMCSE, {"name": "whitening"}]},
    "+ denoising": {"model": _MASK | {"denoise": True}, "objective": [_SIMCSE]},
    "+ two prompts": {
        "model": _MASK | {"second_prompt": 'The sentence : "{text}" means {mask}.'},
        "objective": [_SIMCSE],
    },
    "+ twelve exits": {
        "model": _MASK,
        "objective": [_SIMCSE, {"name": "exits", "layers": [3, 6, 9, 12], "widths": [0, 384, 192]}],
    },
}


class Clock:
    """Takes the time at two steps, with the GPU waited for."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.times: dict[int, float] = {}

    def __call__(self, step: int, *_: Any) -> None:
        """Called after every step."""
        if step in (WARM, self.last):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.times[step] = time.perf_counter()

    @property
    def seconds_a_step(self) -> float:
        """Between the warm-up and the end."""
        return (self.times[self.last] - self.times[WARM]) / (self.last - WARM)


def base_model(folder: Path, tokenizer: Path | None) -> str:
    """BERT-base's shape, random weights, the small encoder's words."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig()).save_pretrained(folder)
    words = tokenizer or shared_folder() / "models" / "wiki-mlm-12x384"
    AutoTokenizer.from_pretrained(words).save_pretrained(folder)
    return str(folder)


def sentences(file: Path | None, limit: int) -> list[str]:
    """The lines of a file, or Wikipedia sentences of the data folder."""
    if file is not None:
        return file.read_text(encoding="utf-8").splitlines()[:limit]
    from layerwise.train import read_corpus

    wikipedia = shared_folder() / "data" / "train" / "wiki1m.parquet"
    return list(read_corpus([str(wikipedia)], ("text",), limit=limit).columns[0])


def ours(name: str, model: str, texts: list[str], steps: int) -> float:
    """Seconds per step of our trainer."""
    from layerwise.train import ContrastiveJob, Corpus, parse_recipe, train

    settings = {"batch_size": BATCH, "steps": steps, "precision": "bf16"}
    quiet = {"task": "", "every": 10 * steps, "log_every": 50}
    tables = {"name": name, "dev": quiet, **(OBJECTIVES | TERMS)[name]}
    tables["objective"] = [
        term | ({"teacher": model} if term.get("teacher") == TEACHER else {}) for term in tables["objective"]
    ]
    tables["train"] = settings | tables.get("train", {})
    recipe = parse_recipe(tables)
    clock = Clock(steps)
    with tempfile.TemporaryDirectory() as folder:
        job = ContrastiveJob(recipe, encoder=model, corpus=Corpus.of(texts, source="wiki"))
        train(job, folder, on_step=clock)
    return clock.seconds_a_step


def theirs(model: str, texts: list[str], steps: int) -> float:
    """Seconds per step of sentence-transformers' trainer."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )
    from transformers import TrainerCallback

    transformer = models.Transformer(model, max_seq_length=32)
    st = SentenceTransformer(modules=[transformer, models.Pooling(transformer.get_word_embedding_dimension(), "cls")])
    clock = Clock(steps)

    class Ticks(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            clock(state.global_step)

    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=3e-5,
            bf16=True,
            save_strategy="no",
            report_to=[],
            logging_steps=50,
            disable_tqdm=True,
        )
        SentenceTransformerTrainer(
            model=st,
            args=arguments,
            train_dataset=Dataset.from_dict({"anchor": texts, "positive": texts}),
            loss=losses.MultipleNegativesRankingLoss(st),
            callbacks=[Ticks()],
        ).train()
    return clock.seconds_a_step


def record(name: str, taken: dict[str, list[float]], steps: int, out: Path | None) -> None:
    """Write what was measured so far."""
    result = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "batch": BATCH,
        "steps": steps - WARM,
        "milliseconds_a_step": {name: [1000 * one for one in times] for name, times in taken.items() if times},
    }
    if out:
        out.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n", encoding="utf-8")
    else:
        write_result(name, result)


def main() -> None:
    """Measure everything in turn."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=40_000)
    parser.add_argument("--terms", action="store_true")
    parser.add_argument("--texts", type=Path, help="sentences, one a line")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    texts, first = sentences(options.texts, options.sentences), MASKED if options.terms else "SimCSE"
    names = TERMS if options.terms else ["sentence-transformers", *OBJECTIVES]
    taken: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        model = base_model(Path(folder) / "base", options.tokenizer)
        for repeat in range(options.repeats):
            for name, times in taken.items():
                one = theirs if name == "sentence-transformers" else lambda *a, n=name: ours(n, *a)
                times.append(one(model, texts, options.steps))
                print(f"{repeat + 1}/{options.repeats} {name}: {1000 * times[-1]:.2f} ms a step", flush=True)
                # a run cut short keeps what it has
                record("training_speed_terms" if options.terms else "training_speed", taken, options.steps, options.out)
    middle = {name: median(times) for name, times in taken.items()}
    for name, one in middle.items():
        print(f"{name:40} {1000 * one:7.2f} ms  {BATCH / one:8.0f}/s  {one / middle[first]:.2f}× SimCSE's step")


if __name__ == "__main__":
    main()
