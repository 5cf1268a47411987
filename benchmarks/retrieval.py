"""Search among Quora's questions: exact and by inverted lists, quality, time and memory.

    python benchmarks/retrieval.py [ENCODER ...]

Every question of the task quora (CS224N's dev pairs, the published part) that has a duplicate is asked among all others
(direct duplicates only). FAISS on one thread for the time of a query; IVF with up to 1,024 lists, of 39 questions or
more each, and several nprobe. Results are added to those in benchmarks/results/retrieval.json. LayerAttPooler's table 3
uses another, larger part of Quora's pairs: its figures do not compare with these.
"""

import json
import sys
from typing import Any

from layers import encoders
from layerwise import LayerModel
from layerwise.data import find_tasks, load_task
from layerwise.evaluate import LayerSubject
from layerwise.kinds import SearchSetting, prepare, score_retrieval
from measure import RESULTS, shared_folder, write_result

PROBES = (1, 16, 64)


def measure(model: LayerModel) -> dict[str, Any]:
    """One encoder's own way to embed."""
    rows = load_task(find_tasks(["quora"])[0], str(shared_folder() / "data"))
    problem, subject = prepare(rows), LayerSubject(model, show_progress_bar=sys.stderr.isatty())
    vectors = next(subject.embed(problem.passages, "", subject.variants))
    found: dict[str, Any] = {"mix": str(model.mix), "width": vectors.shape[1]}
    for probes in PROBES:
        outcome = score_retrieval(
            vectors[problem.queries],
            vectors,
            problem.relevant,
            own=problem.queries,
            setting=SearchSetting(probes=probes),
        )
        exact = {name: value for name, value in outcome.figures.items() if not name.startswith("ivf_")}
        found.setdefault("exact", exact)
        ivf = {name[4:]: value for name, value in outcome.figures.items() if name.startswith("ivf_")}
        found.setdefault("ivf", {})[str(probes)] = ivf
        found["counts"] = outcome.details
        print(f"{model.encoder.name} nprobe {probes}: {outcome.figures}", flush=True)
    return found | {"rows_digest": rows.digest}


def main() -> None:
    """Measure the named encoders, or the masked language model and the embedded default."""
    path = RESULTS / "retrieval.json"
    known = json.loads(path.read_text())["encoders"] if path.exists() else {}
    for name in sys.argv[1:] or ["wiki-mlm-12x384", "all-MiniLM-L6-v2"]:
        known[name] = measure(LayerModel.load(encoders()[name]))
        write_result("retrieval", {"what": "duplicates among Quora's questions", "encoders": known})


if __name__ == "__main__":
    main()
