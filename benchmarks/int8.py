"""int8 on a CPU: speed against sentence-transformers and our float backends, and what every layer loses on STS.

    python benchmarks/int8.py [ENCODER ...] [--part speed|quality] [--sentences 300] [--repeats 5] [--tasks stsb]

Speed: STS sentences of mixed length, calls interleaved, `SentenceTransformer.encode` at the best of its batch sizes;
encoders without sentence-transformers' modules are given to it as sentence-transformers would load them (mean of the
last layer). Quality: Spearman x 100 over all test pairs of the seven STS sets, for the mean of every layer, in float,
in int8, in int8 with every linear layer quantised dynamically, and, where the processor cuts products of full weights
off (x86 without VNNI), so with full weights. Encoders and parts named replace those of the last run of this kind of
processor, benchmarks/results/int8-PROCESSOR.json. --tasks takes fewer sets for large encoders.
"""

import argparse
import json
import logging
import platform
from pathlib import Path
from typing import Any

from embed import sts_sentences
from layerwise import LayerEncoder, LayerModel
from layerwise.data import find_tasks
from layerwise.encoder.int8_plan import Int8Plan
from layerwise.encoder.int8_steps import FULL, weight_steps
from layerwise.errors import ModelError
from layerwise.evaluate import LayerSubject, evaluate
from measure import RESULTS, interleaved, machine, medians, model_folder, paired_ratio, shared_folder, write_result

BATCH_SIZES = (8, 16, 32, 64)
OURS = {"torch": {}, "onnx": {"backend": "onnx"}, "int8": {"precision": "int8"}}


def folder_of(encoder: str) -> Path | str:
    """Where an encoder lies; the others need not be there."""
    if encoder == "all-MiniLM-L6-v2":
        return "default"
    return shared_folder() / "models" / encoder if encoder == "wiki-mlm-12x384" else model_folder(encoder)


def speed(folder: Path | str, texts: list[str], repeats: int) -> dict[str, Any]:
    """The last layer's mean by each backend, and sentence-transformers' `encode`."""
    from sentence_transformers import SentenceTransformer

    models = {name: LayerModel.load(folder, mix="last", device="cpu", **options) for name, options in OURS.items()}
    same_work: dict[str, Any] = {  # as ours: some are stored in bfloat16, and a chat template would double the tokens
        "model_kwargs": {"dtype": "float32"},
        "processor_kwargs": {"chat_template": None},
    }
    theirs = SentenceTransformer(str(models["torch"].encoder.folder.root), device="cpu", **same_work)
    calls = {name: (lambda model=model: model.encode(texts)) for name, model in models.items()}
    for size in BATCH_SIZES:
        calls[f"SentenceTransformer, batch {size}"] = lambda size=size: theirs.encode(texts, batch_size=size)
    for call in (*(lambda model=model: model.encode(texts[:32]) for model in models.values()), calls["onnx"]):
        call()  # graphs are made and memory is taken
    seconds = interleaved(calls, repeats)
    middle = medians(seconds)
    best = min((name for name in calls if name.startswith("Sentence")), key=middle.__getitem__)
    return {
        "sentences": len(texts),
        "seconds": seconds,
        "medians": middle,
        "best_batch_size": best,
        "speed_ratio_to_best": {name: 1 / paired_ratio(seconds, name, best) for name in models},
        "speed_ratio_to_onnx": 1 / paired_ratio(seconds, "int8", "onnx"),
    }


def all_dynamic(folder: Path | str, steps: int) -> LayerEncoder:
    """An int8 encoder without blockwise layers, as `quantize_dynamic` alone makes it."""
    encoder = LayerEncoder(folder, device="cpu", precision="int8")
    encoder._onnx._plans = {encoder.fingerprint()[0]: Int8Plan((), {}, steps)}
    return encoder


def quality(folder: Path | str, names: list[str]) -> dict[str, Any]:
    """Score of every layer by precision: {precision: {set: [score of layer 0, 1, …]}}, and the average of the sets."""
    tasks = find_tasks(names) if names else find_tasks(suites=["sts"])
    data = str(shared_folder() / "data")
    made = {
        "float": LayerEncoder(folder, device="cpu", backend="onnx"),
        "int8": LayerEncoder(folder, device="cpu", precision="int8"),
        "int8, all dynamic": all_dynamic(folder, weight_steps()),
    }
    if weight_steps() < FULL:
        made["int8, all dynamic, full weights"] = all_dynamic(folder, FULL)
    scores, refused = {}, {}
    for name, encoder in made.items():
        mixes = [str(layer) for layer in range(encoder.depth + 1)]
        try:
            runs = evaluate(LayerSubject(LayerModel(encoder), mixes), tasks, data=data).runs
        except ModelError as error:
            refused[name] = str(error)
            print(f"  {name}: {error}", flush=True)
            continue
        scores[name] = {task.name: [run.results[task.name].score for run in runs] for task in tasks}
        averages = [sum(layers) / len(tasks) for layers in zip(*scores[name].values(), strict=True)]
        scores[name]["average"] = averages
        print(f"  {name}: {[round(score, 2) for score in averages]}", flush=True)
    lost = [a - b for a, b in zip(scores["float"]["average"], scores["int8"]["average"], strict=True)]
    blockwise = list(made["int8"]._onnx.plan.blockwise)
    return {"scores": scores, "refused": refused, "lost_by_layer": lost, "blockwise": blockwise}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoders", nargs="*", default=["all-MiniLM-L6-v2"])
    parser.add_argument("--part", choices=("speed", "quality"))
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tasks", default="", help="with commas, instead of the seven STS sets")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("layerwise").setLevel(logging.INFO)
    name = f"int8-{platform.machine()}" + ("" if weight_steps() == FULL else "-without-vnni")
    path = RESULTS / f"{name}.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for encoder in options.encoders:
        folder, parts = folder_of(encoder), results.setdefault(encoder, {})
        if options.part != "quality":
            parts["speed"] = speed(folder, sts_sentences(options.sentences), options.repeats)
            print(encoder, {key: round(value, 2) for key, value in parts["speed"]["speed_ratio_to_best"].items()})
        if options.part != "speed":
            parts["quality"] = quality(folder, [task for task in options.tasks.split(",") if task])
            print(encoder, "lost by layer", [round(value, 2) for value in parts["quality"]["lost_by_layer"]])
        write_result(name, results | {"machine": machine()})


if __name__ == "__main__":
    main()
