"""How far the terms of an explanation are from the cosine that they explain, on real models: the largest residual.

    python benchmarks/explain.py [MODEL …] [--pairs 50]    # the models of LAYERWISE_MODELS and LAYERWISE_SHARED

Pairs of the test part of STS-B, by every form of mix that is explained: a layer, a set, weights, a concatenation,
a join of two poolings, views. Raw result: benchmarks/results/explain.json.
"""

import argparse
import json
import time
from pathlib import Path

from layerwise import LayerModel
from layerwise.data import find_tasks, load_task
from layerwise.explain import explain_pairs
from measure import RESULTS, machine, model_folder, shared_folder, write_result

OURS = ("all-mpnet-base-v2", "SmolLM2-135M-Instruct")
FORMS = {
    "a layer": "last @ mean",
    "a set": "1,-1 @ mean",
    "weights": "1:0.3,-1:0.7 @ mean",
    "a concatenation": "concat(1,-1) @ mean",
    "a join": "last @ mean | 1 @ cls",
    "views": "views(1 @ mean; 2*3,5 @ last; unit)",
}


def explain_table() -> str:
    """The largest residual of each model, in a sentence."""
    result = json.loads((RESULTS / "explain.json").read_text(encoding="utf-8"))
    worst = {name: max(found["largest_residual"].values()) for name, found in result["models"].items()}
    models = ", ".join(f"{name} {value:.0e}" for name, value in worst.items())
    forms = ", ".join(f"`{mix}`" for mix in result["forms"].values())
    return (
        f"The largest residual of {result['pairs']} pairs of STS-B by {forms} and the model's own mix: {models}. "
        f"(`benchmarks/explain.py`)\n"
    )


def main() -> None:
    """Explain every pair by every form of mix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--pairs", type=int, default=50)
    options = parser.parse_args()
    wiki = str(shared_folder() / "models" / "wiki-mlm-12x384")
    models = options.models or ["default", wiki, *(str(model_folder(name)) for name in OURS)]
    rows = load_task(find_tasks(["stsb"])[0]).of_role("test")
    pairs = list(zip(rows.left, rows.right, strict=True))[: options.pairs]
    found = {}
    for path in models:
        name, model = "all-MiniLM-L6-v2" if path == "default" else Path(path).name, LayerModel.load(path)
        own = [explanation.residual for explanation in explain_pairs(model, pairs)]
        residuals = {f"its own ({model.mix})": max(map(abs, own))}
        began = time.perf_counter()
        for form, mix in FORMS.items():
            explained = explain_pairs(model.with_mix(mix), pairs)
            residuals[form] = max(abs(explanation.residual) for explanation in explained)
        seconds = time.perf_counter() - began
        found[name] = {"largest_residual": residuals, "seconds_a_pair": seconds / (len(FORMS) * len(pairs))}
        print(name, {form: f"{value:.1e}" for form, value in residuals.items()}, f"{seconds:.0f} s", flush=True)
    write_result("explain", {"machine": machine(), "pairs": len(pairs), "forms": FORMS, "models": found})


if __name__ == "__main__":
    main()
