"""The tables of the server, from serve.json and serve-x86_64*.json."""

from statistics import median

from evaluation_tables import read, table

_GOALS = {"float": 3.0, "int8": 7.0}  # times the plain route
_NEWEST = "serve-x86_64-without-vnni"
_EARLIER = {"serve-x86_64": "x86 with VNNI", "serve": "aarch64"}


def _times(ratio: float, name: str) -> str:
    """A ratio; with two decimals within 5 % of its goal, which one decimal could seem to reach."""
    is_near = abs(ratio / _GOALS[name] - 1) <= 0.05
    return f"{ratio:.2f}×" if is_near else f"{ratio:.1f}×"


def serve_table() -> str:
    """The server against a plain route, by clients and texts of a request."""
    result = read(_NEWEST)["speed"]
    peers = ["plain", *(["infinity"] if "infinity" in result["cells"][0] else [])]
    names = {"plain": "plain route", "infinity": "infinity-emb"}
    heads = ["clients", "texts per request", *(names[peer] for peer in peers), "float", "int8", "float / plain"]
    heads += ["int8 / plain", *(["float / infinity"] if len(peers) > 1 else []), "float / offline"]
    lines = []
    for cell in result["cells"]:
        rates = {name: median(one["texts_per_second"] for one in cell[name]) for name in (*peers, "float", "int8")}
        ratios = [_times(cell["ratio"][name], name) for name in _GOALS]
        ratios += [f"{rates['float'] / rates['infinity']:.1f}×"] if len(peers) > 1 else []
        lines.append(
            [
                *(str(cell["clients"]), str(cell["texts"]), *(f"{rate:.0f}" for rate in rates.values())),
                *(*ratios, f"{cell['of_offline']['float']:.2f}×"),
            ]
        )
    other = (
        " infinity-emb (torch, own batching) runs in a separate environment with older libraries."
        if len(peers) > 1
        else ""
    )
    return table(heads, lines) + (
        f"\nTexts per second, median of {len(result['cells'][0]['plain'])} turns of {result['seconds']:g} s each, "
        f"all-MiniLM-L6-v2, {result['sentences']} STS sentences, two cores shared with the clients. The plain route is "
        "`SentenceTransformer.encode` behind FastAPI. Float runs ONNX; its numbers differ from those of the plain "
        f"route by at most {result['largest_difference']:.0e}. Offline is `LayerModel.encode` with torch.{other} "
        f"(`benchmarks/serve.py` on {result['machine']['processor']} without VNNI, where int8 is little faster than "
        f"float; raw results: `{_NEWEST}.json`.){_elsewhere()}\n\n"
        f"{_latency_table(result['cells'])}"
    )


def _latency_table(cells: list[dict]) -> str:
    """How long a request takes, by clients and texts of a request: the median of the turns."""
    names = {"plain": "plain route", "float": "float", "int8": "int8"}
    percentiles = ("p50_ms", "p99_ms")
    heads = ["clients", "texts per request", *(f"{name}: p50, p99" for name in names.values())]
    lines = []
    for cell in cells:
        taken = [[median(one[percentile] for one in cell[name]) for percentile in percentiles] for name in names]
        lines.append([str(cell["clients"]), str(cell["texts"]), *(f"{p50:,.0f}, {p99:,.0f} ms" for p50, p99 in taken)])
    return table(heads, lines)


def _elsewhere() -> str:
    """The same of an earlier version on other processors, one text a request."""
    clauses = []
    for name, processor in _EARLIER.items():
        single = [cell for cell in read(name)["speed"]["cells"] if cell["texts"] == 1]
        ratios = {kind: ", ".join(_times(cell["ratio"][kind], kind) for cell in single) for kind in _GOALS}
        clauses.append(f"on {processor}, float {ratios['float']} and int8 {ratios['int8']} (`{name}.json`)")
    clients = ", ".join(str(cell["clients"]) for cell in single)
    return (
        f" Speedup over the plain route of an earlier version on two cores of other processors, one text per request, "
        f"{clients} clients: {'; '.join(clauses)}."
    )


def serve_load_table() -> str:
    """The server under more than it can do, and for long."""
    result = read("serve")
    mixed = {name: median(rates) for name, rates in result["mixed"]["texts_per_second"].items()}
    before, heavy, after = (result["overload"][part] for part in ("before", "overload", "after"))
    refused, answered = heavy["statuses"].get("429", 0), heavy["statuses"].get("200", 0)
    others = sum(heavy["statuses"].values()) - refused - answered
    memory = [number / 2**20 for number in result["soak"]["memory_bytes"]]
    minutes = 10 * len(memory) / 60
    lines = [
        "| | |",
        "|---|---|",
        f"| 8 clients, 16 texts a request: equal `layers`, mixed `layers` | {mixed['equal']:.0f} texts/s, "
        f"{mixed['different']:.0f} texts/s ({result['mixed']['ratio']:.2f}×) |",
        f"| overload, {result['overload']['seconds']:.0f} s of 64 clients with 64 texts a request | {answered:,} "
        f"requests answered, {refused:,} rejected with 429, {others} other |",
        f"| slowest answer | {result['overload']['slowest_seconds']:.0f} s (deadline: 60 s) |",
        f"| memory growth | {result['overload']['memory_growth']:+.1%} |",
        f"| latency of one client before and after, p50 | {before['p50_ms']:.0f} ms, {after['p50_ms']:.0f} ms |",
        f"| memory in {minutes:.0f} minutes with 8 clients, at the first and the last sample | {memory[0]:.0f} MiB, "
        f"{memory[-1]:.0f} MiB (most: {max(memory):.0f} MiB) |",
    ]
    note = (
        "Mixed `layers` are eight mixes that all need every block. For the overload, the clients send many more texts "
        "than the machine can embed, with `--max-queue-tokens 65536`. Requests that do not fit into the queue are "
        "rejected at once, so memory stays constant, no request waits beyond the deadline, and afterwards a single "
        "client is served as before. Two cores, shared with the clients and other processes. (`serve.json`.) "
    )
    return "\n".join(lines) + f"\n\n{note}{_overload_elsewhere()}\n"


def _overload_elsewhere() -> str:
    """The same overload on another kind of processor."""
    found = read(_NEWEST)["overload"]
    before, statuses, after = found["before"], found["overload"]["statuses"], found["after"]
    others = sum(statuses.values()) - statuses["200"] - statuses["429"]
    return (
        f"On two x86 cores, {found['clients']} clients: {statuses['200']:,} requests answered, {statuses['429']:,} "
        f"rejected, {others} other, the slowest answer after {found['slowest_seconds']:.0f} s; memory "
        f"{found['memory_growth']:+.1%}; latency "
        f"{before['p50_ms']:.0f} ms before and {after['p50_ms']:.0f} ms after (`{_NEWEST}.json`)."
    )


def serve_gpu_table() -> str:
    """One process and several on a GPU."""
    result = read("serve")["gpu"]
    lines = ["| workers | clients | texts/s | share of offline | p50 | p99 |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {cell['workers']} | {cell['clients']} | {cell['texts_per_second']:,.0f} | {cell['of_offline']:.2f}× | "
        f"{cell['p50_ms']:.0f} ms | {cell['p99_ms']:.0f} ms |"
        for cell in result["cells"]
    ]
    return "\n".join(lines) + (
        f"\n\n{result['machine']['device']}, {result['machine']['cores']} cores; a model of BERT-base's shape in "
        f"bfloat16, Wikipedia sentences, {result['cells'][0]['texts']} texts per request, {result['seconds']:g} s per "
        f"row, one run; {result['client_processes']} client processes on the same "
        f"cores{', CUDA MPS on' if result['mps'] else ''}. Offline, `LayerModel.encode` reached "
        f"{result['offline_texts_per_second']:,.0f} texts/s in the same run. {_reached(result['cells'])} "
        "(`benchmarks/serve.py --part gpu`, "
        "`serve.json`.)\n"
    )


def _reached(cells: list[dict]) -> str:
    """The best share of offline of each number of workers."""
    best = {cell["workers"]: 0.0 for cell in cells}
    for cell in cells:
        best[cell["workers"]] = max(best[cell["workers"]], cell["of_offline"])
    shares = (f"{workers} worker{'s' * (workers > 1)} {share:.2f}×" for workers, share in best.items())
    return f"The best of each: {', '.join(shares)}."
