"""Searching every set of layers: ours against the paper's Methods 1 to 4, the largest search, and what it costs.

    python benchmarks/search.py --part methods [--repeats 1]     # 13 layers x 768 x 1,000 SICK pairs, real views
    python benchmarks/search.py --part methods --quick --sample 1024   # Method 2 alone, on made-up views; a minute
    python benchmarks/search.py --part large [--device cuda --out FILE]   # 2^25 - 1 sets on 350 pairs, made-up views
    python benchmarks/search.py --part cost [--repeats 3]        # against pairs, layers and width; docs/search-cost.svg
    python benchmarks/search.py --part ... --small               # a trial on made-up views; written to --out or nowhere

Ours is `Search(dev="all").fit_views(...)` from views to the best set, Gram matrices included; the methods are in
`lc_methods.py`.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lc_methods as lc
from measure import interleaved, machine, medians, model_folder, shared_folder, write_result

MODEL = "all-mpnet-base-v2"
SIZES = {"methods": (13, 1000, 768), "large": (25, 350, 1024), "cost": (13, 1000, 768)}  # layers, pairs, width
POINTS = {"pairs": (100, 300, 1000, 3000), "layers": (7, 10, 13, 16, 19), "width": (64, 256, 768, 1024)}
SMALL_SIZES = {"methods": (7, 100, 64), "large": (12, 100, 64), "cost": (7, 100, 64)}
SMALL_POINTS = {"pairs": (50, 100, 200), "layers": (5, 7, 9), "width": (32, 64, 128)}
TOKENS = 12  # of the made-up token states: SICK's mean, special tokens included
MOST_LAYERS, MOST_PAIRS = 13, 1000  # up to which Method 4 is measured, on every set
CHECKED_PAIRS = 100  # on which all methods must agree in float64
FIGURE = Path(__file__).parents[1] / "docs" / "search-cost.svg"
Data = tuple[np.ndarray, np.ndarray, np.ndarray]  # views of the left and the right sentences, scores


def made_up_views(layers: int, pairs: int, width: int) -> Data:
    """Random walks: each layer is the one below plus a step, the more alike in a pair the higher its (noisy) score."""
    random = np.random.default_rng(0)
    gold = random.integers(0, 26, pairs) / 5
    apart = 1.2 - gold[:, None] / 5 + random.normal(0, 0.6, (pairs, layers))
    left, other = (random.standard_normal((pairs, layers, width), dtype=np.float32) for _ in range(2))
    return left.cumsum(1), (left + other * apart[..., None].astype(np.float32)).cumsum(1), gold


def sick_views(pairs: int) -> Data:
    """Random SICK pairs through all layers of a real encoder, mean of tokens."""
    import pyarrow.parquet as pq

    from layerwise import LayerEncoder

    table = pq.read_table(shared_folder() / "data" / "sts" / "sick.parquet")
    chosen = table.take(np.random.default_rng(0).choice(len(table), pairs, replace=False)).to_pydict()
    encoder = LayerEncoder(model_folder(MODEL), device="cpu")
    views = encoder.encode_layers(chosen["sentence1"] + chosen["sentence2"], cache=True, show_progress_bar=True)
    return np.array(views[:pairs]), np.array(views[pairs:]), np.array(chosen["score"])


def ours(left: np.ndarray, right: np.ndarray, gold: np.ndarray, device: str = "cpu") -> Any:
    """Our search, from views to the best set."""
    from layerwise import Search

    return Search(dev="all", device=device).fit_views(left, right, gold).selection_


def our_scores(selection: Any) -> dict[lc.LayerTuple, float]:
    """Set -> score."""
    from layerwise.search import layers_of

    table = selection.table
    return {layers_of(int(mask)): float(s) for mask, s in zip(table.masks, table.scores, strict=True)}


def methods(options: argparse.Namespace) -> dict[str, Any]:
    """The paper's methods and ours on the same views in one run."""
    is_made_up = options.small or options.quick
    data = made_up_views(*options.sizes) if is_made_up else sick_views(options.pairs)
    pairs, layers, width = data[0].shape
    pooled, few = lc.layers_first(*data[:2]), [part[:CHECKED_PAIRS] for part in data]
    agree = {} if options.quick else lc.agreement(pooled[:, :, :CHECKED_PAIRS], few[2], our_scores(ours(*few)))
    sets = lc.sample_sets(layers, options.sample)
    entries = sorted({lc.memory_entries(pooled, size, options.memory_gib) for size in (3,)})
    calls = {f"method 4, maxMem {count}": partial(lc.method_4, pooled, count) for count in entries}
    calls |= {f"method 3, maxMem {count}": partial(lc.method_3, pooled, count) for count in entries}
    calls["method 2, tuned"] = partial(lc.method_2, pooled)
    calls["method 2"] = partial(lc.method_2_plain, pooled)
    sampled = {
        "method 2, one sentence at a time": partial(lc.method_2_each, pooled, sets),
        "method 1": partial(lc.method_1, lc.made_up_tokens(pooled, TOKENS), sets),
    }
    if options.quick:
        calls, sampled = {}, {"method 2": partial(lc.method_2_plain, pooled, sets)}
    result: dict[str, Any] = {
        "what": f"all {2**layers - 1} sets, Spearman, {layers} layers x {width} x {pairs} pairs, float32 views",
        "views": "made up" if is_made_up else f"{MODEL}, mean of tokens, random SICK pairs",
        "method_1_tokens": f"made up, {TOKENS} a sentence; their means are the views",
        "scaled_up_from_a_sample_of_sets": {name: len(sets) for name in sampled},
        "threads": torch.get_num_threads(),
        "largest_difference_in_float64": {"pairs": len(few[2]), **agree},
    }
    search = ours(*data)
    expected, best = our_scores(search), search.chosen
    taken: dict[str, list[float]] = {"ours": [], **{name: [] for name in (*calls, *sampled)}}
    details: dict[str, dict[str, Any]] = {"ours": {"best": best.layers, "score_of_best": best.dev}}
    for _ in range(options.repeats):
        for name, call in (calls | sampled).items():
            taken["ours"] += interleaved({"ours": lambda: ours(*data)}, 3)["ours"]
            found = lc.evaluate(call(), data[2])
            split = found.scaled_to_all(layers) if name in sampled else found.split()
            taken[name].append(sum(split.values()))
            details[name] = {
                "split_of_seconds": split,
                "best": found.best,
                "score_of_best": found.scores[found.best],
                "our_score_of_its_best": expected[found.best],
                "largest_difference_in_float32": found.largest_difference(expected),
            }
            print(f"  {name}: {taken[name][-1]:.2f} s", flush=True)
            difference = details[name]["largest_difference_in_float32"]  # rounding swaps neighbours and parts ties
            assert difference < 0.01, f"{name} in float32 differs from ours by {difference}"
    middle = medians(taken)
    ratios = {name: seconds / middle["ours"] for name, seconds in middle.items()}
    for name, ratio in ratios.items():
        note = f"best {','.join(map(str, details[name]['best']))}" + " of a sample, scaled up" * (name in sampled)
        parts = (f"{part} {s:.2f}" for part, s in details[name].get("split_of_seconds", {}).items())
        print(f"{name:33}{middle[name]:9.2f} s{ratio:8.1f}x  {note}  {' '.join(parts)}")
    by_method = {f"method {n}": [ratios[name] for name in calls if name.startswith(f"method {n}")] for n in (4, 3)}
    fastest = {name: min(found) for name, found in by_method.items() if found}
    return result | {"seconds": taken, "medians": middle, "ratios_to_ours": ratios, "fastest": fastest, "runs": details}


def peak_memory() -> int:
    """This process's peak resident memory in bytes (unlike ru_maxrss, without what its parent had)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def search_once(options: argparse.Namespace) -> None:
    """The worker of `large`: search, look at time and memory, rescore some sets by SciPy, print it all as JSON."""
    data, cuda = made_up_views(*options.sizes), options.device.startswith("cuda")
    before, seconds = peak_memory(), list[float]()
    search = ours(*data, options.device) if cuda else None  # the GPU warms up
    for _ in range(options.repeats):
        search = None  # its table is as large as the next one's
        began = time.perf_counter()
        search = ours(*data, options.device)
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        print(f"  {seconds[-1]:.2f} s", file=sys.stderr, flush=True)
    result = {"sets": len(search.table), "seconds": seconds, "best": search.chosen.layers}
    result |= {"peak_resident_bytes": peak_memory(), "resident_before_the_search": before}
    if cuda:
        result |= {"gpu": torch.cuda.get_device_name(), "peak_gpu_bytes": torch.cuda.max_memory_allocated()}
    rows = [search.table.at(int(row)) for row in np.random.default_rng(0).choice(len(search.table), 64)]
    scores = {search.chosen.layers: search.chosen.dev} | {row.layers: row.dev for row in rows}
    pooled = lc.layers_first(*data[:2]).double()
    again = lc.evaluate(((chosen, pooled[list(chosen)].mean(0)) for chosen in scores), data[2], decimals=12)
    difference = again.largest_difference(scores)
    assert difference <= 1e-6, f"SciPy differs by {difference}"
    print(json.dumps(result | {"largest_difference_to_scipy": difference, "sets_rescored": len(scores)}))


def large(options: argparse.Namespace) -> dict[str, Any]:
    """All sets of many layers, in a process of its own."""
    layers, pairs, width = options.sizes
    command = [sys.executable, __file__, "--part", "large", "--worker"]
    for name in ("layers", "pairs", "width", "device", "repeats", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])
    middle, peaks = statistics.median(found["seconds"]), [found["peak_resident_bytes"], found.get("peak_gpu_bytes", 0)]
    resident, gpu = (f"{peak / 2**30:.2f} GiB" for peak in peaks)
    print(
        f"{found['sets']:,} sets x {pairs} pairs on {options.device}: {middle:.2f} s, peak {resident}, on a GPU {gpu}"
    )
    what = f"all 2^{layers} - 1 sets, Spearman, {pairs} pairs, width {width}, made-up views, from views to best set"
    return {"what": what, "device": options.device, "threads": options.threads, "median_seconds": middle, **found}


def cost(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds against pairs, layers and width, the others held fixed."""
    fixed = dict(zip(("layers", "pairs", "width"), options.sizes, strict=True))
    ours(*made_up_views(7, 100, 64))  # warm up
    measured: dict[tuple[int, ...], dict[str, list[float]]] = {}
    lines: dict[str, list[dict[str, Any]]] = {}
    for along, values in (SMALL_POINTS if options.small else POINTS).items():
        lines[along] = []
        for value in values:
            at = fixed | {along: value}
            if (key := tuple(at.values())) not in measured:
                print(", ".join(f"{number} {name}" for name, number in at.items()), flush=True)
                measured[key] = cost_at(at, options)
            lines[along].append({along: value, "medians": medians(measured[key]), "seconds": measured[key]})
    for along, line in lines.items():
        for point in line:
            print(f"{along:7}{point[along]:6,}", *(f" {name} {s:.3f} s" for name, s in point["medians"].items()))
    if options.out or not options.small:
        draw(lines, fixed, options.out.with_suffix(".svg") if options.out else FIGURE)
    what = "seconds of searching all sets with Spearman, made-up views, one of pairs, layers and width varied"
    return {"what": what, "fixed": fixed, "threads": torch.get_num_threads(), "points": lines}


def cost_at(at: dict[str, int], options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of ours and, where it takes minutes at most, of Method 4."""
    left, right, gold = made_up_views(**at)
    calls = {"ours": lambda: ours(left, right, gold)}
    if at["layers"] <= MOST_LAYERS and at["pairs"] <= MOST_PAIRS:
        pooled = lc.layers_first(left, right)
        entries = lc.memory_entries(pooled, 4, options.memory_gib)
        calls["method 4"] = lambda: lc.evaluate(lc.method_4(pooled, entries), gold)
    return interleaved(calls, options.repeats)


def draw(lines: dict[str, list[dict[str, Any]]], fixed: dict[str, int], path: Path) -> None:
    """One panel each for pairs, layers and width."""
    from layerwise.plots import LIGHT, save_figure
    from layerwise.plots.labels import legend
    from layerwise.plots.style import LINE, MARKERS, finish, new_drawing, new_panels, style_axes

    drawing = new_drawing(LIGHT, size=(10, 3.4))
    names, handles = {"ours": "layerwise", "method 4": "Method 4 of the paper"}, {}
    for place, (panel, along) in enumerate(zip(new_panels(drawing, len(lines), share_y=True), lines, strict=True)):
        others = ", ".join(f"{name} {number:,}" for name, number in fixed.items() if name != along)
        style_axes(panel, LIGHT, x=along, y="" if place else "seconds, all sets", title=others)
        for order, (name, label) in enumerate(names.items()):
            known = [(point[along], point["medians"][name]) for point in lines[along] if name in point["medians"]]
            (handles[label],) = panel.plot(*zip(*known, strict=True), color=LIGHT.colour(order), linewidth=LINE,
                                           marker=MARKERS[order], markersize=4)  # fmt: skip
            points = [f"{label}, {along} {value:,}: {seconds:.2g} s" for value, seconds in known]
            drawing.label_points(handles[label], points)
        panel.set(xscale="linear" if along == "layers" else "log", yscale="log")
        values = [point[along] for point in lines[along]]
        room = [along == "layers" or after > 1.5 * value for value, after in itertools.pairwise([*values, np.inf])]
        panel.set_xticks(values, [f"{value:,}" * fits for value, fits in zip(values, room, strict=True)])
        panel.yaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
    legend(drawing, list(handles.values()), list(handles))
    save_figure(finish(drawing, "Seconds of searching all sets against pairs, layers and width"), path)


def save(name: str, result: dict[str, Any], options: argparse.Namespace) -> None:
    """To --out, or among the results."""
    if options.out is not None:
        try:
            used = machine()
        except PackageNotFoundError:  # the device machine has few packages
            used = {"python": sys.version.split()[0], "torch": torch.__version__, "numpy": np.__version__}
        options.out.write_text(json.dumps({"machine": used, **result}, indent=1) + "\n", encoding="utf-8")
    elif not options.small:
        write_result(name, result)


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=SIZES, required=True)
    parser.add_argument("--layers", type=int, help="of made-up views")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--width", type=int, help="of made-up views")
    parser.add_argument("--repeats", type=int, help="1; 3 for cost and on a GPU")
    parser.add_argument("--sample", type=int, default=64, help="sets by which the slowest methods are measured")
    parser.add_argument("--memory-gib", type=float, default=8, help="for the mem of Methods 3 and 4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of the large search")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="of the methods, Method 2 on a sample of the sets")
    parser.add_argument("--small", action="store_true", help="a trial")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    usual = (SMALL_SIZES if options.small else SIZES)[options.part]
    given = (options.layers, options.pairs, options.width)
    options.sizes = tuple(one or other for one, other in zip(given, usual, strict=True))
    options.layers, options.pairs, options.width = options.sizes
    options.repeats = options.repeats or (3 if options.part == "cost" or options.device != "cpu" else 1)
    torch.set_num_threads(options.threads)
    if options.worker:
        search_once(options)
        return
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"load {load:.1f}: others use this machine; ratios come out wrong, mostly in our favour", file=sys.stderr)
    result = {"load_before": load} | {"methods": methods, "large": large, "cost": cost}[options.part](options)
    place = "_quick" * options.quick if options.part != "large" else "_cpu" if options.device == "cpu" else "_gpu"
    save(f"search_{options.part}{place}", result, options)


if __name__ == "__main__":
    main()
