"""Writes the tables of the README and of docs/ from the raw results, between their markers.

    python benchmarks/tables.py [--check]

With --check nothing is written; the exit code is 1 where a table differs from its results.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


def read(name: str) -> dict:
    """A raw result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def embed_table() -> str:
    """Every claim about time and memory of layer access and embedding."""
    cpu, gpu, million = read("embed_cpu"), read("embed_gpu"), read("embed_million")
    depth, memory, embed = cpu["depth"]["ratios_to_last_layer"], cpu["memory_64x256"], cpu["embed"]
    speeds = gpu["sentences_per_second"]
    theirs = max((name for name in speeds if name.startswith("sentence")), key=speeds.__getitem__)
    rows = [
        ("time of all 13 layers", "the last layer alone", f"{depth['all layers']:.2f}×"),
        (
            "time of all 13 layers, three poolings",
            "the last layer alone",
            f"{depth['all layers, three poolings']:.2f}×",
        ),
        ("time of a mix of layers 0, 3, 6 of 12", "the last layer (full depth)", f"{depth['layers 0, 3, 6']:.2f}×"),
        (
            "memory that all layers add to a pass, 64 × 256 tokens",
            "what keeping hidden states adds",
            f"{memory['ratio_of_extra_over_last_layer']:.2f}×",
        ),
        (
            "memory of that pass above the loaded model",
            "with hidden states kept",
            f"{memory['ratio_of_extra_over_loaded_model']:.2f}×",
        ),
        *(
            (
                f"speed of `{name.split(',')[0]}`,{name.split(',')[1]} backend",
                f"`{embed['best_batch_size']}`",
                f"{r:.2f}×",
            )
            for name, r in embed["speed_ratio_to_best"].items()
        ),
        (
            f"H200, bfloat16, end to end: {speeds['layerwise, 65536 tokens']:,.0f} sentences/s",
            f"{theirs}: {speeds[theirs]:,.0f} sentences/s",
            f"{speeds['layerwise, 65536 tokens'] / speeds[theirs]:.2f}×",
        ),
        (
            f"`layerwise embed`, {million['compared']['rows']:,} rows: memory in the last quarter of the run",
            "memory in the first quarter",
            f"{million['memory_late_over_early']:.2f}×",
        ),
    ]
    head = "| what | compared with | ratio |\n|---|---|---|\n"
    kills = len(million["kills"])
    notes = (
        f"\nCPU: {cpu['what']}, {cpu['machine']['cores']} cores ({cpu['machine']['processor']}), medians of "
        f"{len(embed['seconds']['layerwise embed, torch'])} interleaved repeats; ours includes reading the file and "
        f"writing shards. GPU: {gpu['what']}; {gpu['rows']:,} sentences of {gpu['mean_tokens']:.0f} tokens on average; "
        f"the bare forward pass at 1,024 × 32 tokens runs at {gpu['bare_forward_1024x32']:,.0f} sentences/s there. The "
        f"run of {million['compared']['rows']:,} rows (mix of layer 0) was repeated with {kills} SIGKILLs at random "
        f"moments: largest difference of any number to the undisturbed run "
        f"{million['compared']['largest_difference']:.1g}.\n"
    )
    return head + "".join(f"| {a} | {b} | {c} |\n" for a, b, c in rows) + notes


TABLES: dict[str, tuple[list[str], Callable[[], str]]] = {
    "embed-results": (["README.md", "docs/embed.md"], embed_table),
}


def main() -> None:
    """Write every table, or check them."""
    stale = []
    for marker, (files, make) in TABLES.items():
        block = f"<!-- {marker} -->\n{make()}<!-- /{marker} -->"
        for name in files:
            path = ROOT / name
            text = path.read_text(encoding="utf-8")
            new, count = re.subn(
                rf"<!-- {marker} -->.*?<!-- /{marker} -->", lambda _, b=block: b, text, flags=re.DOTALL
            )
            if not count:
                sys.exit(f"{name} has no place for {marker}")
            if new != text:
                stale.append(name)
                if "--check" not in sys.argv:
                    path.write_text(new, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"tables differ from benchmarks/results: {', '.join(stale)}; run python benchmarks/tables.py")


if __name__ == "__main__":
    main()
