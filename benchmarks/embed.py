"""Time and memory of layer access and embedding on a CPU, at the shape of all-mpnet-base-v2 (12 x 768), in one run.

    python benchmarks/embed.py [--sentences 200] [--repeats 5]

- every layer against the last layer alone, and a mix of layers up to 6 of 12 against the full depth: time;
- tapped layers against kept hidden states at 64 x 256 tokens: peak memory, each in a process of its own;
- embedding a file of STS sentences of mixed length (reading, tokenising and writing Parquet included) against
  `SentenceTransformer.encode` at its best batch size (only that call): time.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from measure import interleaved, medians, model_folder, paired_ratio, shared_folder, write_result

MODEL = "all-mpnet-base-v2"
BATCH_SIZES = (4, 8, 16, 32)
PEAKS = ("loaded", "last layer", "tapped, all layers", "kept hidden states")


def sts_sentences(count: int) -> list[str]:
    """Distinct sentences of all STS sets, untokenised, in random order."""
    found: dict[str, None] = {}
    for path in sorted((shared_folder() / "data" / "sts_raw").glob("*.parquet")):
        table = pq.read_table(path, columns=["sentence1", "sentence2"]).to_pydict()
        found |= dict.fromkeys(table["sentence1"] + table["sentence2"])
    texts = sorted(found)
    random.Random(0).shuffle(texts)
    return texts[:count]


def depth_times(texts: list[str], repeats: int) -> dict:
    """All layers, the last alone, and a mix of low layers."""
    from layerwise import LayerEncoder, LayerModel

    encoder = LayerEncoder(model_folder(MODEL), device="cpu")
    low = LayerModel(encoder, "0,3,6")
    last = LayerModel(encoder, "last")
    calls = {
        "last layer": lambda: last.encode(texts),
        "all layers": lambda: encoder.encode_layers(texts),
        "all layers, three poolings": lambda: encoder.encode_layers(texts, ("mean", "cls", "max")),
        "layers 0, 3, 6": lambda: low.encode(texts),
    }
    last.encode(texts[:32])
    taken = interleaved(calls, repeats)
    return {
        "seconds": taken,
        "medians": medians(taken),
        "ratios_to_last_layer": {name: paired_ratio(taken, name, "last layer") for name in calls},
    }


def peak_memory(kind: str) -> int:
    """The peak memory, in bytes, of a process that does one thing."""
    command = [sys.executable, __file__, "--peak", kind]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def print_peak(kind: str) -> None:
    """Do one thing at 64 x 256 tokens and print this process's peak memory."""
    import torch

    from layerwise import LayerEncoder

    encoder = LayerEncoder(model_folder(MODEL), device="cpu")
    depth = encoder.depth
    tokens = torch.randint(1000, 20000, (64, 256), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(tokens)
    with torch.inference_mode():
        if kind == "last layer":
            encoder.read(tokens, mask, [depth], ["mean"])
        elif kind == "tapped, all layers":
            encoder.read(tokens, mask, range(depth + 1), ["mean"])
        elif kind == "kept hidden states":
            states = encoder.model(input_ids=tokens, attention_mask=mask, output_hidden_states=True).hidden_states
            torch.stack([layer.mean(1) for layer in states], dim=1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def memory() -> dict:
    """Peak memory of the ways to read all layers."""
    peaks = {kind: peak_memory(kind) for kind in PEAKS}
    over_last = {kind: peaks[kind] - peaks["last layer"] for kind in PEAKS[2:]}
    over_model = {kind: peaks[kind] - peaks["loaded"] for kind in PEAKS[1:]}
    return {
        "peak_bytes": peaks,
        "extra_over_last_layer": over_last,
        "extra_over_loaded_model": over_model,
        "ratio_of_extra_over_last_layer": over_last["tapped, all layers"] / over_last["kept hidden states"],
        "ratio_of_extra_over_loaded_model": over_model["tapped, all layers"] / over_model["kept hidden states"],
    }


def against_sentence_transformers(texts: list[str], repeats: int) -> dict:
    """The embedding job, file to shards, against `encode` of the host library."""
    from sentence_transformers import SentenceTransformer

    from layerwise import LayerModel
    from layerwise.data import RowSource
    from layerwise.embed import EmbedJob
    from layerwise.embed.engine import embed_chunks
    from layerwise.embed.job import chunks
    from layerwise.embed.shards import ShardFolder

    folder = model_folder(MODEL)
    theirs = SentenceTransformer(str(folder), device="cpu")
    ours = {
        f"layerwise embed, {name}": LayerModel.load(folder, backend=name, device="cpu") for name in ("torch", "onnx")
    }
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "texts.txt"
        source.write_text("\n".join(text.replace("\n", " ") for text in texts) + "\n", encoding="utf-8")
        job = EmbedJob(RowSource.of(str(source), ("text",)))

        def embed(model: LayerModel) -> None:
            embed_chunks(model, chunks(job), job, ShardFolder(Path(scratch), job), lambda _chunk: None)

        for model in ours.values():
            model.encode(texts[:32])
        theirs.encode(texts[:32])
        calls = {name: (lambda model=model: embed(model)) for name, model in ours.items()}
        for size in BATCH_SIZES:
            calls[f"SentenceTransformer.encode, batch {size}"] = lambda size=size: theirs.encode(texts, batch_size=size)
        taken = interleaved(calls, repeats)
    middle = medians(taken)
    best = min((name for name in calls if name.startswith("Sentence")), key=middle.__getitem__)
    tokens = ours["layerwise embed, torch"].encoder._sentences(texts).lengths.tolist()
    return {
        "seconds": taken,
        "medians": middle,
        "tokens": {"mean": sum(tokens) / len(tokens), "longest": max(tokens)},
        "best_batch_size": best,
        "speed_ratio_to_best": {name: 1 / paired_ratio(taken, name, best) for name in ours},
    }


def main() -> None:
    """Measure everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peak", choices=PEAKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print_peak(options.peak)
        return
    texts = sts_sentences(options.sentences)
    result = {
        "what": f"{MODEL}, float32, {len(texts)} STS sentences of mixed length",
        "depth": depth_times(texts, options.repeats),
        "memory_64x256": memory(),
        "embed": against_sentence_transformers(texts, options.repeats),
    }
    write_result("embed_cpu", result)
    print("time / last layer:", {k: round(v, 3) for k, v in result["depth"]["ratios_to_last_layer"].items()})
    print("memory, extra over last layer:", round(result["memory_64x256"]["ratio_of_extra_over_last_layer"], 3))
    print("memory, extra over the model:", round(result["memory_64x256"]["ratio_of_extra_over_loaded_model"], 3))
    print("speed / best sentence-transformers:", result["embed"]["speed_ratio_to_best"])


if __name__ == "__main__":
    main()
