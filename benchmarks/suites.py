"""Transfer, probing and multilingual STS by encoder: the mean of the last layer under SentEval's protocol.

    python benchmarks/suites.py [--suite transfer|probing|multilingual] [--protocol senteval|senteval-mlp] [ENCODER ...]

Accuracies are means over three seeds of the folds; tasks with train, dev and test have nothing random. Results are
added to those in benchmarks/results/suites.json, each with its stamp's main facts and the seconds it took.
"""

import argparse
import json
import time

from layers import encoders
from layerwise import LayerModel
from layerwise.data import find_tasks
from layerwise.evaluate import LayerSubject, Protocol, evaluate
from measure import RESULTS, model_folder, shared_folder, write_result

STAMPED = ("split", "rows", "rows_digest", "mix", "protocol", "seeds", "empty_texts", "as_published")


def main() -> None:
    """Measure, task by task."""
    parser = argparse.ArgumentParser()
    parser.add_argument("encoders", nargs="*")
    parser.add_argument("--suite", default="transfer")
    parser.add_argument("--tasks", default="")
    parser.add_argument("--protocol", default="senteval")
    given = parser.parse_args()
    path = RESULTS / "suites.json"
    known = json.loads(path.read_text())["results"] if path.exists() else {}
    folders = encoders() | {"all-MiniLM-L6-v2": model_folder("all-MiniLM-L6-v2")}
    tasks = find_tasks(given.tasks.split(",")) if given.tasks else find_tasks(suites=[given.suite])
    tasks = [task for task in tasks if (shared_folder() / "data" / task.file).exists()]
    for name in given.encoders or list(folders):
        subject = LayerSubject(LayerModel.load(folders[name], mix="last"))
        for task in tasks:
            began = time.perf_counter()
            found = evaluate(subject, [task], protocol=Protocol(given.protocol), data=str(shared_folder() / "data"))
            result = found.runs[0].results[task.name]
            kept = {key: result.stamp.get(key) for key in STAMPED}
            entry = {"metric": result.metric, "figures": result.figures, "sd": result.sd, "stamp": kept}
            entry["seconds_encoding_included"] = time.perf_counter() - began
            known.setdefault(name, {}).setdefault(given.protocol, {})[task.name] = entry
            sd = f" ± {result.sd[result.metric]:.2f}" if result.sd else ""
            print(f"{name} {task.name} {given.protocol}: {result.score:.2f}{sd}", flush=True)
            write_result("suites", {"what": "mean of the last layer, SentEval's protocol", "results": known})


if __name__ == "__main__":
    main()
