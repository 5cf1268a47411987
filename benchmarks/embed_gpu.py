"""Sentences per second on a GPU, end to end (tokenising included): layerwise against sentence-transformers.

    python benchmarks/embed_gpu.py --texts FILE --tokenizer FOLDER --out results.json

The model is a BERT of base shape (12 x 768) with random weights in bfloat16: speed does not depend on their values.
sentence-transformers runs at its best batch size of those tried. Repeats are interleaved; medians are reported. Where
the time goes is measured by doing each part alone. Texts of 256 tokens are sentences joined, and cut there before.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
import transformers
from transformers import AutoTokenizer, BertConfig, BertModel

DEFAULT_BUDGET = 65_536
BUDGETS = (16_384, 32_768, DEFAULT_BUDGET)
BATCH_SIZES = (512, 1024)  # 32, 128, 256 and 2,048 were slower
LONG, JOINED = 256, 12  # tokens, and sentences that are joined to a text of at least so many


def base_shape_folder(tokenizer_folder: Path, folder: Path, **shape: int) -> Path:
    """A BERT of base shape, or another one, with random weights, saved with a real tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    torch.manual_seed(0)
    model = BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=512, **shape))
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def seconds(function) -> float:
    """How long a call takes, all GPU work included."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def bare_forward(model, repeats: int, *, batch: int = 1024, length: int = 32) -> float:
    """Sentences per second of the forward pass alone, nothing padded."""
    tokens = torch.randint(1000, 20000, (batch, length), device="cuda")
    mask = torch.ones_like(tokens)
    with torch.inference_mode():
        for _ in range(5):
            model(input_ids=tokens, attention_mask=mask)
        taken = [
            seconds(lambda: [model(input_ids=tokens, attention_mask=mask) for _ in range(10)]) for _ in range(repeats)
        ]
    return 10 * batch / statistics.median(taken)


def where_time_goes(model, texts: list[str], job, folder: Path) -> dict[str, float]:
    """Seconds of each part of the job done alone, on the same sentences; on the way they overlap."""
    from layerwise.embed.job import chunks
    from layerwise.embed.shards import ShardFolder
    from layerwise.encoder import token_batches
    from layerwise.encoder.streaming import _parts

    encoder, seconds_of = model.encoder, {}

    def timed(name: str, function):
        torch.cuda.synchronize()
        began = time.perf_counter()
        result = function()
        torch.cuda.synchronize()
        seconds_of[name] = time.perf_counter() - began
        return result

    read = timed("reading the file", lambda: list(islice(chunks(job), max(1, len(texts) // job.shard_rows))))
    parts = [part.texts for part in _parts([chunk.texts for chunk in read], cut=encoder.reader.packs)]
    tokens = timed("tokenising", lambda: [encoder._sentences(texts) for texts in parts])
    packs = encoder.reader.packs
    batches = timed(
        "sorting and cutting into batches",
        lambda: [list(token_batches(t, budget=DEFAULT_BUDGET, packs=packs)) for t in tokens],
    )

    real = encoder._sentences
    encoder._sentences = Known(tokens, real.max_length)
    arrays = timed("passes of the model, copies included", lambda: list(model.stream(chunk.texts for chunk in read)))
    encoder._sentences = real
    folder.mkdir()
    shards = ShardFolder(folder, job)
    timed("writing shards", lambda: [shards.write(c, a) for c, a in zip(read, arrays, strict=True)])
    return seconds_of | {"batches": sum(map(len, batches))}


def long_texts(encoder, texts: list[str]) -> list[str]:
    """Sentences joined, and cut where they have 256 tokens."""
    joined = [" ".join(texts[start : start + JOINED]) for start in range(0, len(texts) - JOINED + 1, JOINED)]
    spans = [encoder.spans(text)[1] for text in joined]
    return [text[: max(end for _, end in ends)] for text, ends in zip(joined, spans, strict=True)]


class Known:
    """A tokenizer that has done its work."""

    def __init__(self, tokens, max_length: int) -> None:
        self._tokens, self.max_length = iter(tokens), max_length

    def __call__(self, _texts):
        """The next of its results."""
        return next(self._tokens)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    import sentence_transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    from layerwise import LayerModel
    from layerwise.data import RowSource
    from layerwise.embed import EmbedJob
    from layerwise.embed.engine import embed_chunks
    from layerwise.embed.job import chunks
    from layerwise.embed.shards import ShardFolder

    texts = options.texts.read_text(encoding="utf-8").splitlines()[: options.rows]
    with tempfile.TemporaryDirectory() as scratch:
        folder = base_shape_folder(options.tokenizer, Path(scratch) / "base")
        ours = LayerModel.load(folder, dtype="bfloat16", device="cuda", max_length=256)
        transformer = Transformer(str(folder), model_kwargs={"dtype": torch.bfloat16}, max_seq_length=256)
        theirs = SentenceTransformer(modules=[transformer, Pooling(768)], device="cuda")
        few = texts[:2000]
        difference = abs(ours.encode(few) - theirs.encode(few, batch_size=256).astype("float32")).max()

        runs = {f"sentence-transformers, batch {size}": size for size in BATCH_SIZES}
        calls = {name: (lambda size=size: theirs.encode(texts, batch_size=size)) for name, size in runs.items()}
        for budget in BUDGETS:

            def with_budget(budget=budget):
                ours.encoder.budget.tokens = budget
                ours.encode(texts)

            calls[f"layerwise, {budget} tokens"] = with_budget

        def all_layers():
            ours.encoder.budget.tokens = DEFAULT_BUDGET
            for _ in ours.encoder.stream(
                (texts[i : i + 8192] for i in range(0, len(texts), 8192)),  # as many as a shard has
                lambda tokens, mask: ours.encoder.read(tokens, mask, range(13), ("mean",)),
            ):
                pass

        calls["layerwise, all 13 layers"] = all_layers
        half = LayerModel(ours.encoder, "6")
        job = EmbedJob(RowSource.of(str(options.texts), ("text",), format="text"))
        shards = ShardFolder(Path(scratch), job)

        def whole_job():
            ours.encoder.budget.tokens = DEFAULT_BUDGET
            todo = islice(chunks(job), max(1, len(texts) // job.shard_rows))
            embed_chunks(ours, todo, job, shards, lambda _chunk: None)

        calls["layerwise embed, file to Parquet shards"] = whole_job
        calls["layerwise, layer 6 of 12"] = lambda: half.encode(texts)
        long = long_texts(ours.encoder, texts)
        calls["layerwise, texts of 256 tokens"] = lambda: ours.encode(long)
        for name, call in calls.items():
            if not name.startswith("sentence-transformers"):  # which was warmed up by the comparison
                call()
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.repeats):
            for name, call in calls.items():
                taken[name].append(seconds(call))
        counts = dict.fromkeys(calls, len(texts)) | {"layerwise, texts of 256 tokens": len(long)}
        counts["layerwise embed, file to Parquet shards"] = max(1, len(texts) // job.shard_rows) * job.shard_rows
        speeds = {name: counts[name] / statistics.median(values) for name, values in taken.items()}
        tokens = float(ours.encoder._sentences(texts).lengths.mean())
        best_theirs = max(speed for name, speed in speeds.items() if name.startswith("sentence"))
        default = speeds[f"layerwise, {DEFAULT_BUDGET} tokens"]
        result = {
            "what": "sentences/s end to end, tokenising included, BERT 12 x 768, bfloat16",
            "device": torch.cuda.get_device_name(),
            "versions": {
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "sentence_transformers": sentence_transformers.__version__,
                "python": sys.version.split()[0],
            },
            "rows": len(texts),
            "mean_tokens": tokens,
            "largest_difference_between_the_two": float(difference),
            "bare_forward_1024x32": bare_forward(ours.encoder.model, options.repeats),
            "bare_forward_256x256": bare_forward(ours.encoder.model, options.repeats, batch=256, length=LONG),
            "packs": ours.encoder.reader.packs,
            "seconds_of_each_part": where_time_goes(ours, texts, job, Path(scratch) / "parts"),
            "sentences_per_second": speeds,
            "seconds": taken,
            "ratio_to_best_sentence_transformers": default / best_theirs,
        }
    options.out.write_text(json.dumps(result, indent=1))
    for name, speed in speeds.items():
        print(f"{speed:12,.0f}  {name}")
    print(f"{result['bare_forward_1024x32']:12,.0f}  bare forward, 1,024 x 32 tokens")
    print(f"{result['bare_forward_256x256']:12,.0f}  bare forward, 256 x 256 tokens")
    print(result["seconds_of_each_part"], "packs:", result["packs"])
    print(
        f"ratio {result['ratio_to_best_sentence_transformers']:.2f}, mean tokens {tokens:.1f}, differ {difference:.1e}"
    )


if __name__ == "__main__":
    main()
