"""The tables of `embed` on a GPU, from embed_gpu*.json, and of int8 on processors of two kinds, from int8-*.json."""

from dataclasses import dataclass
from statistics import mean, median

from evaluation_tables import SETS, read, table

_NAMES = {
    "layerwise, 65536 tokens": "`encode`, batches of 65,536 tokens (the default)",
    "layerwise, 32768 tokens": "`encode`, batches of 32,768 tokens",
    "layerwise, layer 6 of 12": "`encode`, layer 6 of 12",
    "layerwise, all 13 layers": "views of all 13 layers",
    "layerwise embed, file to Parquet shards": "`layerwise embed`, file to shards",
    "layerwise, texts of 256 tokens": "`encode`, texts of 256 tokens",
}
PROCESSORS = {"aarch64": "aarch64", "x86_64-without-vnni": "x86_64 without VNNI", "x86_64": "x86_64"}
_SUFFERS = 0.2  # points that a layer loses in int8


def embed_gpu_table() -> str:
    """Sentences a second on a GPU, as shares of the bare pass of the model."""
    result, slower = read("embed_gpu"), read("embed_gpu_slower_host")
    speeds = result["sentences_per_second"]
    short, long = result["bare_forward_1024x32"], result["bare_forward_256x256"]
    theirs = max((name for name in speeds if name.startswith("sentence")), key=speeds.__getitem__)
    again = slower["sentences_per_second"]
    lines = [
        [
            label,
            f"{speeds[name]:,.0f}",
            f"{speeds[name] / (long if '256' in label else short):.2f}",
            f"{again[name]:,.0f}",
        ]
        for name, label in (_NAMES | {theirs: theirs}).items()
    ]
    one, every = "layerwise, 65536 tokens", "layerwise, all 13 layers"
    note = (
        f"BERT 12 x 768 in bfloat16 on one {result['device']} with 16 cores, {result['rows']:,} Wikipedia sentences of "
        f"{result['mean_tokens']:.0f} tokens, including tokenisation; median of "
        f"{len(result['seconds']['layerwise, 65536 tokens'])} interleaved repeats. The bare forward pass, without "
        f"padding and copies, reaches {short:,.0f} sentences/s at 1,024 × 32 tokens and {long:,.0f} texts/s at 256 × "
        f"256. The last column is a later run of {len(slower['seconds'][one])} repeats on another such machine with "
        f"slower processors and the same GPU (bare pass {slower['bare_forward_1024x32']:,.0f}). Since then, packed "
        "texts are pooled without "
        f"padding: all layers take {again[one] / again[every]:.2f} times as long as one layer, instead of "
        f"{speeds[one] / speeds[every]:.2f}. (`benchmarks/embed_gpu.py`, `embed_gpu.json`, "
        "`embed_gpu_slower_host.json`.)"
    )
    return table(["", "sentences/s", "share of the bare pass", "slower processors"], lines) + f"\n{note}\n"


def gpu_parts_table() -> str:
    """Where the time of `embed` on a GPU goes: each part by itself, on two hosts."""
    hosts = [read(name) for name in ("embed_gpu", "embed_gpu_slower_host")]
    parts = [dict(host["seconds_of_each_part"]) for host in hosts]
    batches = parts[0].pop("batches")
    parts[1].pop("batches")
    sums = [sum(seconds.values()) for seconds in parts]
    lines = [
        [name, *_in_seconds(*((seconds[name], total) for seconds, total in zip(parts, sums, strict=True)))]
        for name in sorted(parts[0], key=parts[0].__getitem__, reverse=True)
    ]
    lines.append(["sum", *_in_seconds(*((total, total) for total in sums))])
    whole = [median(host["seconds"]["layerwise embed, file to Parquet shards"]) for host in hosts]
    lines.append(["`layerwise embed`, where they overlap", *_in_seconds(*zip(whole, sums, strict=True))])
    note = (
        f"The {hosts[0]['rows']:,} sentences of the table above in {batches} batches, each part run alone. A run "
        "overlaps tokenising, passes and writing, so it takes less time than the sum. (`benchmarks/embed_gpu.py`, "
        "`embed_gpu.json`, `embed_gpu_slower_host.json`.)"
    )
    return table(["part", "time", "share", "slower processors", "share"], lines) + f"\n{note}\n"


def _in_seconds(*pairs: tuple[float, float]) -> list[str]:
    """A time and its share, of each host."""
    return [text for seconds, total in pairs for text in (f"{seconds:.2f} s", f"{seconds / total:.0%}")]


def int8_table() -> str:
    """Speed by backend to sentence-transformers' on the same processor, and the points that int8 loses on STS."""
    lines, counts = [], set()
    for processor, label in PROCESSORS.items():
        found = read(f"int8-{processor}")
        cores = found.pop("machine")["cores"]
        for encoder, parts in found.items():
            ratios = ["not measured", "", ""]
            if "speed" in parts:
                ratios = [f"{ratio:.2f}×" for ratio in parts["speed"]["speed_ratio_to_best"].values()]
                counts.add(parts["speed"]["sentences"])
            points = _points(parts["quality"]) if "quality" in parts else ["not measured", ""]
            lines.append([encoder, f"{label}, {cores} cores", *ratios, *points])
    note = (
        "Speed relative to `SentenceTransformer.encode` at its best batch size, in the same run, "
        f"{' or '.join(map(str, sorted(counts)))} STS sentences. Points lost: decrease in Spearman × 100 of int8 "
        "against float, for the last layer and for the worst layer. The aarch64 speeds were measured before several "
        "batches ran at a time. sentence-transformers reads the same texts in float32, for SmolLM2 without the chat "
        "template that it would add. x86 processors without VNNI multiply int8 hardly faster than float, and need "
        f"weights of half as many steps; with full weights, {_cut_off()}. (`benchmarks/int8.py`.)"
    )
    head = ["encoder", "processor", "torch", "ONNX", "int8", "points lost", "worst layer"]
    return table(head, lines) + f"\n{note}\n"


def _cut_off() -> str:
    """What full weights lose where their products are cut off: in the last layer and in the worst."""
    clauses = []
    for encoder, parts in read("int8-x86_64-without-vnni").items():
        scores = parts.get("quality", {}).get("scores", {})
        if (cut := scores.get("int8, all dynamic, full weights")) is not None:
            lost = [a - b for a, b in zip(scores["float"]["average"], cut["average"], strict=True)]
            clauses.append(f"{encoder} loses {lost[-1]:.2f} points, {max(lost):.2f} in the worst layer")
    return "; ".join(clauses)


def int8_layers_table() -> str:
    """The points that int8 loses by layer, of each encoder's measurement with the most sets; and what is missing."""
    measured = _measurements()
    most = max(len(one.lost) for one in measured)
    lines = [[str(layer), *(_loss(one.lost, layer) for one in measured)] for layer in range(most)]
    lines.append(["average", *(f"{mean(one.lost):.2f}".replace("-0.00", "0.00") for one in measured)])
    suffer = [
        f"{one.encoder} {sum(value > _SUFFERS for value in one.lost)} of {len(one.lost)} "
        f"({one.blockwise or 'no'} blockwise linear layers)"
        for one in measured
    ]
    few = [f"{one.encoder} on {_sets(one.sets)} only" for one in measured if one.sets < len(SETS)]
    missing = f" Not measured on all seven STS sets: {', '.join(few)}." if few else ""
    note = (
        "Points of Spearman × 100 that int8 loses against float, mean pooling; negative: int8 scores higher. Bold: "
        f"more than {_SUFFERS:g} points, which so many layers lose: {'; '.join(suffer)}. Layer 0 is not quantised."
        f"{missing} (`benchmarks/int8.py --part quality`.)"
    )
    head = ["layer", *(f"{one.encoder}, {_sets(one.sets)}, {one.processor}" for one in measured)]
    return table(head, lines) + f"\n{note}\n"


@dataclass(frozen=True)
class _Measured:
    """The loss of every layer of an encoder on so many sets, with so many blockwise linear layers."""

    encoder: str
    processor: str
    sets: int
    lost: list[float]
    blockwise: int


def _measurements() -> list[_Measured]:
    """Of each encoder the measurement with the most sets; of two with as many, that on x86_64."""
    measured: dict[str, _Measured] = {}
    for processor in PROCESSORS:
        for encoder, parts in read(f"int8-{processor}").items():
            if encoder != "machine" and "quality" in parts:
                quality = parts["quality"]
                sets = len(quality["scores"]["float"]) - 1  # but for their average
                one = _Measured(encoder, processor, sets, quality["lost_by_layer"], len(quality["blockwise"]))
                if encoder not in measured or sets >= measured[encoder].sets:
                    measured[encoder] = one
    return list(measured.values())


def _loss(lost: list[float], layer: int) -> str:
    if layer >= len(lost):
        return ""
    text = f"{lost[layer]:.2f}".replace("-0.00", "0.00")
    return f"**{text}**" if lost[layer] > _SUFFERS else text


def _sets(count: int) -> str:
    return "STS-B" if count == 1 else f"{count} sets"


def _points(quality: dict) -> list[str]:
    lost, sets = quality["lost_by_layer"], len(quality["scores"]["float"]) - 1
    return [f"{lost[-1]:.2f} ({_sets(sets)})", f"{max(lost):.2f}"]
