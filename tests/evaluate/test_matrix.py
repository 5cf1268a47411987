"""Tasks by layers: the best view of each task, tables by token pooling, JSON, Markdown and a heat map."""

import numpy as np
import pytest

from layerwise.errors import InputError
from layerwise.evaluate import Evaluation, Matrix, Run, TaskResult, tables, to_markdown

LAYERS, TASKS = 4, 12


def run(layers: tuple[int, ...], pooling: str, scores) -> Run:
    results = {
        f"task{n}": TaskResult(f"task{n}", "own", "accuracy", {"accuracy": float(score)}, {"kind": "fewshot"})
        for n, score in enumerate(scores)
    }
    return Run(f"{','.join(map(str, layers))} @ {pooling}", layers, pooling, results)


@pytest.fixture
def evaluation() -> Evaluation:
    scores = np.random.default_rng(0).uniform(10, 90, (2, LAYERS, TASKS))
    scores[1, 0] = np.nan  # the first token of layer 0
    runs = [
        run((layer,), pooling, scores[p, layer]) for p, pooling in enumerate(("mean", "cls")) for layer in range(LAYERS)
    ]
    return Evaluation("model", {"name": "senteval"}, tuple(runs))


def test_the_best_view_of_each_task(evaluation):
    matrix = Matrix.of(evaluation.runs)
    assert matrix.scores.shape == (TASKS, 2 * LAYERS)
    facts = matrix.as_dict()
    for task, row in zip(facts["tasks"], facts["scores"], strict=True):
        assert facts["best"][task] == facts["mixes"][int(np.nanargmax(row))]
        assert row[0] == evaluation.runs[0].results[task].score
    empty = Matrix.of([run((0,), "cls", [np.nan])])
    assert empty.as_dict()["best"] == {"task0": None}


def test_many_tasks_are_rows_and_each_pooling_has_a_table(evaluation):
    made = tables(evaluation)
    assert [columns for columns, _ in made] == [
        ["task", "metric", *(f"{layer} @ {pooling}" for layer in range(LAYERS)), "best"] for pooling in ("mean", "cls")
    ]
    for columns, rows in made:
        assert len(rows) == TASKS
        for row in rows:
            values = [float("nan") if cell == "-" else float(cell) for cell in row[2:-1]]
            assert row[-1] == columns[2 + int(np.nanargmax(values))]
    few = Evaluation("model", {}, tuple(run((layer,), "mean", [50, 60]) for layer in range(LAYERS)))
    ((columns, rows),) = tables(few)
    assert (columns[:3], len(rows)) == (["layers", "task0", "task1"], LAYERS)


def test_markdown_has_all_tables(evaluation):
    text = to_markdown(evaluation)
    assert text.count("| task | metric |") == 2
    assert text.count("| task3 | accuracy |") == 2


def test_a_heat_map_has_a_row_for_each_task_and_pooling(evaluation):
    drawing = Matrix.of(evaluation.runs).draw()
    names = [label.get_text() for label in drawing.axes[0].get_yticklabels()]
    assert names == [f"task{n}, {pooling}" for n in range(TASKS) for pooling in ("mean", "cls")]
    shares = drawing.axes[0].collections[0].get_array().reshape(2 * TASKS, LAYERS)
    assert np.nanmax(shares) == pytest.approx(100)
    dots = drawing.axes[0].collections[1].get_offsets()
    assert len(dots) == TASKS
    with pytest.raises(InputError, match="a heat map is of single layers; evaluate with --layers each"):
        Matrix.of([run((0, 1), "mean", [1.0])]).draw()


def test_tasks_without_a_score_above_0_are_left_out():
    runs = [run((layer,), "mean", [0.0, 10.0 * layer, np.nan]) for layer in range(3)]
    drawing = Matrix.of(runs).draw()
    assert [label.get_text() for label in drawing.axes[0].get_yticklabels()] == ["task1"]
    assert drawing.axes[0].collections[0].get_array().ravel().tolist() == pytest.approx([0, 50, 100])
    with pytest.raises(InputError, match="no view has a score above 0 on any task; there is nothing to draw"):
        Matrix.of([run((0,), "mean", [0.0])]).draw()
