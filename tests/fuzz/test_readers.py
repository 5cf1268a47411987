"""Every reader of files, given any bytes: a value, or a LayerwiseError of one line.

A few examples always, thousands with the marker `slow`.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerwise.data import RowSource, Task, read_pairs, read_task, read_task_file, text_of
from layerwise.embed import EmbedJob
from layerwise.embed.shards import ShardFolder
from layerwise.encoder import ViewCache, find_model
from layerwise.encoder.cache import ViewKey
from layerwise.errors import LayerwiseError, printable
from layerwise.evaluate import ResultStore
from layerwise.measures.training import training_curve
from layerwise.model.load import load_parts
from layerwise.predict.saved_tasks import read_tasks
from layerwise.train import load_recipe
from support.tiny import WIDTH, save_tiny

FEW, MANY = 40, 3000
LETTERS = st.sampled_from(list("ab \"',;\t\r\n\0\x1b\x85\u2028\ufeff\ud800é漢😀{}[]:=.#-+0123456789eE\\"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ROWS_TASK = Task(name="x", kind="classification", file="x.csv", columns={"left": "text", "label": "label"})
KEY = ViewKey("m", "t", "x", "mean", 8, "float32", "torch", (2, 3, 4))


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def texts_like(*examples: str) -> st.SearchStrategy[bytes]:
    """Any bytes, any text, and these examples with a few characters changed, added or removed."""

    @st.composite
    def changed(draw) -> bytes:
        text = draw(st.sampled_from(examples))
        for _ in range(draw(st.integers(0, 4))):
            place = draw(st.integers(0, len(text)))
            text = text[:place] + draw(st.text(LETTERS, max_size=3)) + text[place + draw(st.integers(0, 3)) :]
        return as_bytes(text)

    return changed() | st.binary(max_size=60) | st.text(LETTERS, max_size=60).map(as_bytes)


def json_like(**known: object) -> st.SearchStrategy[bytes]:
    """As `texts_like`, and objects whose values are of any kind."""
    objects = st.fixed_dictionaries({}, optional={key: JSON | st.just(value) for key, value in known.items()})
    return objects.map(lambda value: json.dumps(value).encode()) | texts_like(json.dumps(known))


def flipped(content: bytes) -> st.SearchStrategy[bytes]:
    """A file with single bits changed, or cut."""

    @st.composite
    def damaged(draw) -> bytes:
        data = bytearray(content)
        for _ in range(draw(st.integers(1, 3))):
            data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
        return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)

    return damaged() | st.binary(max_size=60)


def parquet() -> bytes:
    whole = pa.BufferOutputStream()
    columns = {"text": ["a", "b"], "sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [1.0, 2.0]}
    pq.write_table(pa.table(columns | {"label": ["x", "y"]}), whole)
    return whole.getvalue().to_pybytes()


def read_rows(path: Path) -> None:
    source = RowSource.of(str(path), ("text",))
    for row in source:
        text_of(source, row, 0)


ROW_READERS = {
    "rows": read_rows,
    "pairs": lambda path: read_pairs(str(path)),
    "task": lambda path: read_task(ROWS_TASK, path),
}
HEADERS = ("text,label\na,x\nb,y\n", "sentence1,sentence2,score\na,b,1\nc,d,2.5\n", '"text","label"\n"a ""b""",x\n')
LINES = (
    '{"text": "a", "label": "x"}\n{"text": "b", "label": 1}\n',
    '{"sentence1": "a", "sentence2": "b", "score": 1}\n',
)
ROW_FILES = {
    ".txt": texts_like("a\nb\n"),
    ".csv": texts_like(*HEADERS),
    ".tsv": texts_like(*(text.replace(",", "\t") for text in HEADERS)),
    ".jsonl": texts_like(*LINES) | json_like(text="a", label="x", sentence1="a", sentence2="b", score=1),
    ".parquet": flipped(parquet()),
}
TASK_FILE = '[[task]]\nname = "a"\nkind = "sts"\nfile = "p.csv"\nscale = [0, 5]\n[task.columns]\nleft = "x"\n'
RECIPE = 'name = "x"\nextends = "simcse-unsup"\n[data]\nmax_length = 32\n[training]\nsteps = 10\n'
METRICS = '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": null, "eval_spearman": 0.1}\n'


def check(read, path: Path, content: bytes) -> None:
    """A value or one line, whatever the bytes."""
    path.write_bytes(content)
    try:
        read(path)
    except LayerwiseError as error:
        text = str(error)
        assert text
        assert text == printable(text)


def fuzz(read, name: str, contents: st.SearchStrategy[bytes], examples: int) -> None:
    with tempfile.TemporaryDirectory() as folder:

        @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
        @given(contents)
        def run(content: bytes) -> None:
            check(read, Path(folder) / name, content)

        run()


def model_reader(folder: Path):
    def read(_path: Path) -> None:
        load_parts(find_model(folder))

    return read


def manifest_reader(path: Path) -> None:
    shards = ShardFolder(path.parent, EmbedJob(RowSource("x.txt", "text", ("text",))))
    (path.parent / "part-000000.parquet").touch()
    with shards.opened({"format": "parquet", "model": "m"}, overwrite=False):
        pass


def cache_reader(path: Path) -> None:
    cache = ViewCache(path.parent.parent)
    assert cache.get(KEY) is None or path.name == "views.npy"
    list(cache.entries())


def stored_reader(path: Path) -> None:
    store = ResultStore(path.parent)
    store._path = lambda _key: path
    store.get({"a": 1})


READERS = {
    "task file": (read_task_file, "tasks.toml", texts_like(TASK_FILE)),
    "recipe": (load_recipe, "recipe.toml", texts_like(RECIPE)),
    "metrics": (training_curve, "metrics.jsonl", texts_like(METRICS) | json_like(step=1, loss=0.5)),
    "manifest": (manifest_reader, "_embed.json", json_like(format="parquet", model="m")),
    "stored evaluation": (
        stored_reader,
        "result.json",
        json_like(
            key=json.dumps({"format": 3, "a": 1}), task="x", metric="spearman", scores={"spearman": 1.0}, stamp={}
        ),
    ),
}


@pytest.fixture(params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def examples(request) -> int:
    return request.param


@pytest.mark.parametrize("ending", ROW_FILES)
@pytest.mark.parametrize("reader", ROW_READERS)
def test_files_of_rows(reader, ending, examples):
    fuzz(ROW_READERS[reader], f"rows{ending}", ROW_FILES[ending], examples)


@pytest.mark.parametrize("reader", READERS)
def test_files_of_settings_and_results(reader, examples):
    read, name, contents = READERS[reader]
    fuzz(read, name, contents, examples)


MODEL_FILES = {
    "layerwise.json": json_like(chosen="x", mix="last", fitted_on=[{"hashes": "x", "different": 1}], training={"a": 1}),
    "modules.json": texts_like(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]'
    )
    | JSON.map(lambda value: json.dumps(value).encode()),
    "config_sentence_transformers.json": json_like(
        prompts={"query": "q: "}, default_prompt_name="query", similarity_fn_name="cosine"
    ),
    "1_Pooling/config.json": json_like(pooling_mode="mean", pooling_mode_mean_tokens=True, include_prompt=True),
    "2_Dense/config.json": json_like(activation_function="torch.nn.Tanh", in_features=WIDTH, use_residual=False),
}


@pytest.mark.parametrize("name", MODEL_FILES)
def test_files_of_a_model(name, examples, tmp_path):
    folder = save_tiny("bert", tmp_path / "model")
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    modules = [
        {"idx": 0, "name": "0", "path": p, "type": f"sentence_transformers.models.{k}"} for p, k in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for part in ("1_Pooling", "2_Dense"):
        (folder / part).mkdir()
        (folder / part / "config.json").write_text("{}")
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"")

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(MODEL_FILES[name])
    def run(content: bytes) -> None:
        check(model_reader(folder), folder / name, content)

    run()


def test_tasks_of_a_model(examples, tmp_path):
    (tmp_path / "tasks").mkdir()
    task = {"name": "a", "kind": "classification", "file": "x.csv", "columns": {"left": "t", "label": "l"}}
    entry = {"task": task, "objective": {"task": "a"}, "labels": ["x", "y"]}
    contents = json_like(format=2, tasks=[entry]) | JSON.map(
        lambda value: json.dumps({"format": 2, "tasks": [entry | {"labels": value}]}).encode()
    )

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(contents)
    def run(content: bytes) -> None:
        check(lambda path: read_tasks(path.parent, WIDTH), tmp_path / "tasks.json", content)

    run()


@pytest.mark.parametrize("name", ["manifest.json", "views.npy"])
def test_entries_of_the_cache(name, examples, tmp_path):
    cache = ViewCache(tmp_path)
    cache.put_all([KEY], lambda arrays: [np.copyto(array, 1.0) for array in arrays], label="x")
    entry = tmp_path / KEY.digest
    whole = {path.name: path.read_bytes() for path in entry.iterdir()}

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(flipped(whole[name]))
    def run(content: bytes) -> None:
        entry.mkdir(exist_ok=True)
        for other, intact in whole.items():
            (entry / other).write_bytes(content if other == name else intact)
        views = cache.get(KEY)
        assert views is None or (views == 1.0).all()
        list(cache.entries())

    run()
