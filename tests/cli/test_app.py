"""The command line: answers at once, says the same to people and programs, and makes one line of a user's mistake."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

from layerwise.cli.app import app, main
from layerwise.data import demo_corpus, demo_rows
from layerwise.encoder import LayerEncoder
from layerwise.files import atomic_file
from layerwise.mixes import parse_mix
from layerwise.model import LayerModel
from layerwise.search import Search
from layerwise.version import __version__
from support.commands import COMMAND, assert_one_line, call, call_json, check_schema, run_main, strict_json
from support.tiny import SENTENCES, WIDTH


def embeddings(out: Path) -> np.ndarray:
    return np.stack(pq.read_table(out)["embedding"].to_numpy())


# Help and version


def test_help_names_the_commands():
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in ("info", "embed", "demo", "cache"))


def test_help_and_version_import_nothing_heavy():
    heavy = "{'torch', 'transformers', 'sentence_transformers', 'datasets', 'numpy', 'pyarrow', 'scipy'}"
    code = f"""
import sys
from layerwise.cli.app import app
for line in ("--help", "embed -h", "info -h", "cache clear -h", "data -h", "data fetch -h", "demo -h", "--version"):
    app(line.split(), standalone_mode=False)
print("heavy:", sorted({heavy} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"
    assert all(word in done.stdout for word in ("--shard-rows", "--suite", "--to", "--data"))


COMMANDS = ["", "cache", "cache clear", "data", "data list", "data fetch", "data check"]
COMMANDS += [command.name for command in app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_are_shown_without_a_type(command):
    told = call(*command.split(), "--help")
    assert "--help" in told
    assert "<bool>" not in told


def test_version():
    assert call("--version") == f"layerwise {__version__}\n"


# info


@pytest.mark.parametrize("name", ["bert", "electra", "modernbert"])
def test_info_of_a_model_folder(tiny_folders, name):
    facts = call_json("info", tiny_folders[name])
    encoder = LayerEncoder(tiny_folders[name])
    assert facts["name"] == str(tiny_folders[name])
    assert facts["architecture"] == type(encoder.model).__name__
    assert (facts["layers"], facts["depth"], facts["width"]) == ([0, 1, 2, 3, 4], 4, WIDTH)
    assert facts["parameters"] == sum(parameter.numel() for parameter in encoder.model.parameters())
    assert facts["max_length"] == encoder.max_length
    assert (facts["mix"], facts["embedding_width"], facts["normalized"]) == ("4 @ mean", WIDTH, False)
    assert facts["layers_read_by"] == "taps (pooled inside the pass)"
    assert facts["dtype"] == "float32"


def test_info_of_a_saved_model_tells_its_mix(tmp_path, tiny_bert):
    LayerModel(tiny_bert, "concat(1,2) @ cls", prompts={"query": "q: "}, chosen="by lot").save(tmp_path / "saved")
    facts = call_json("info", tmp_path / "saved", "--max-length", 9)
    assert (facts["mix"], facts["mix_chosen"], facts["prompts"]) == ("concat(1,2) @ cls", "by lot", {"query": "q: "})
    assert (facts["embedding_width"], facts["max_length"]) == (2 * WIDTH, 9)
    assert (facts["blocks_kept"], facts["blocks_of"], facts["depth"]) == (2, 4, 2)


def test_info_for_people_says_the_same(tiny_bert):
    facts = call_json("info", tiny_bert)
    rows = [line.split() for line in call("info", tiny_bert).splitlines() if line.strip()]
    for name in ("architecture", "depth", "parameters", "mix", "dtype"):
        assert [*name.split("_"), *str(facts[name]).split()] in rows
    assert ["layers", "0", "to", "4"] in rows
    assert (facts["fitted_on"], facts["training"], facts["prompts"]) == ([], {}, {})
    assert ["fitted", "on", "nothing", "recorded"] in rows
    assert facts["views_of_1000_sentences"] == 4000 * 5 * WIDTH
    assert ["views", "of", "1000", "sentences", "640.0", "kB"] in rows


def test_info_of_the_default_model():
    facts = call_json("info")
    assert facts == call_json("info", "default")
    assert (facts["name"], facts["depth"], facts["width"]) == ("all-MiniLM-L6-v2", 6, 384)
    assert (facts["parameters"], facts["normalized"]) == (22_713_216, True)


# embed


def make(path: Path) -> Path:
    rows = [{"id": str(number), "text": text} for number, text in enumerate(SENTENCES)]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".txt":
        path.write_text("\n".join(SENTENCES))
    else:
        cells = [["id", "text"], *([row["id"], f'"{row["text"]}"'] for row in rows)]
        path.write_text("".join(("\t" if path.suffix == ".tsv" else ",").join(row) + "\n" for row in cells))
    return path


@pytest.mark.parametrize("ending", ["txt", "csv", "tsv", "jsonl", "parquet"])
def test_embed_every_format(tmp_path, tiny_bert, ending):
    path = make(tmp_path / f"rows.{ending}")
    keep = () if ending == "txt" else ("--keep", "id")
    said = call_json("embed", tiny_bert, path, "-o", tmp_path / "out", *keep, "--shard-rows", 3)
    assert said.pop("seconds") > 0
    assert said.pop("tokens_per_second") > 0
    assert said.pop("tokens") == sum(LayerEncoder(tiny_bert, device="cpu").token_counts(SENTENCES))
    assert said == {"out": str(tmp_path / "out"), "rows": 7, "set_aside": 0, "resumed": 0, "shards": 3, "width": WIDTH}
    assert np.abs(embeddings(tmp_path / "out") - LayerModel.load(tiny_bert).encode(SENTENCES)).max() < 1e-6
    if keep:
        assert pq.read_table(tmp_path / "out")["id"].to_pylist() == list("0123456")


def test_embed_standard_input_to_one_file(tmp_path, monkeypatch, tiny_bert):
    data = "\n".join(SENTENCES).encode()
    monkeypatch.setattr("sys.argv", list(map(str, ["layerwise", "embed", tiny_bert, "-", "-o", tmp_path / "a.npy"])))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(SystemExit, match="0"):
        main()
    assert np.abs(np.load(tmp_path / "a.npy") - LayerModel.load(tiny_bert).encode(SENTENCES)).max() < 1e-6


def test_embed_passes_its_options_on(tmp_path, tiny_bert):
    path = tmp_path / "rows.data"
    path.write_text("sentence\n" + "".join(f'"{text}"\n' for text in SENTENCES[:3]) + '" "\n')
    options = "--input-format csv --column sentence --mix 1,3@max --prompt so --empty skip --normalize --truncate-dim 8"
    numbers = "--number-type float16 --dtype float32 --max-length 7 --tokens-per-batch 20 --device cpu --format parquet"
    call("embed", tiny_bert, path, "-o", tmp_path / "out", *options.split(), *numbers.split())
    model = LayerModel(LayerEncoder(tiny_bert, max_length=7), "1,3 @ max")
    expected = model.encode(SENTENCES[:3], prompt="so", normalize_embeddings=True, truncate_dim=8)
    found = np.stack(pq.read_table(tmp_path / "out")["embedding"].to_numpy())
    assert found.dtype == np.float16
    assert np.abs(found - expected).max() < 1e-3


def test_embed_tells_people_what_it_did_and_goes_on(tmp_path, tiny_bert):
    """The brackets of a folder's name are no markup."""
    out = tmp_path / "run[old]"
    path = make(tmp_path / "rows.txt")
    assert call("embed", tiny_bert, path, "-o", out).startswith("7 rows of 32 numbers in ")
    said = " ".join(call("embed", tiny_bert, path, "-o", out).split())
    assert said.startswith("0 rows of 32 numbers in ")
    assert "(7 were there already)" in said
    assert said.endswith("run[old]")


def test_interrupted_embed_says_how_to_go_on(tmp_path, monkeypatch, capfd, tiny_bert):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("layerwise.embed.run.run_embed", interrupted)
    words = ("embed", tiny_bert, make(tmp_path / "rows.txt"), "-o", tmp_path)
    code, _, error = run_main(monkeypatch, capfd, *words)
    assert (code, error.splitlines()[-1]) == (130, "error: interrupted; nothing was written yet")
    (tmp_path / "part-000000.parquet").touch()
    code, _, error = run_main(monkeypatch, capfd, *words)
    assert code == 130
    assert error.splitlines()[-1] == (
        "error: interrupted; the shards written before are kept: run the same command again to resume"
    )


# cache


def test_cache_shows_and_clears(tiny_bert, own_cache):
    nothing = {"bytes": 0, "onnx_bytes": 0, "results": 0, "results_bytes": 0, "entries": []}
    assert call_json("cache") == {"folder": str(own_cache / "views"), **nothing}
    assert call("cache") == f"0 entries, 0 B in {own_cache / 'views'}\n"
    LayerEncoder(tiny_bert).encode_layers(SENTENCES, ["mean", "cls"], cache=True)
    shown = call_json("cache")
    size = sum(path.stat().st_size for path in own_cache.rglob("*") if path.is_file())
    assert shown["bytes"] == size > 2 * 4 * 7 * 5 * WIDTH
    assert sorted(entry["key"]["pooling"] for entry in shown["entries"]) == ["cls", "mean"]
    assert {tuple(entry["key"]["shape"]) for entry in shown["entries"]} == {(7, 5, WIDTH)}
    table = call("cache")
    assert "2 entries" in table
    assert all(entry["name"][:12] in table for entry in shown["entries"])

    first, second = shown["entries"]
    assert call_json("cache", "clear", first["name"][:8]) == {"freed_bytes": first["bytes"]}
    assert [entry["name"] for entry in call_json("cache")["entries"]] == [second["name"]]
    assert call("cache", "clear").endswith("kB freed\n")
    assert call_json("cache")["entries"] == []


def test_cache_counts_and_clears_graphs_too(own_cache):
    (own_cache / "onnx").mkdir(parents=True)
    (own_cache / "onnx" / "a.onnx").write_bytes(bytes(1234))
    assert call_json("cache")["onnx_bytes"] == 1234
    assert call_json("cache", "clear", "a") == {"freed_bytes": 0}, "a prefix names views"
    assert call_json("cache", "clear") == {"freed_bytes": 1234}
    assert call_json("cache")["onnx_bytes"] == 0


def test_cache_counts_and_clears_results_too(own_cache):
    (own_cache / "results").mkdir(parents=True)
    (own_cache / "results" / "abc.json").write_text("{}")
    (own_cache / "data").mkdir()
    found = call_json("cache")
    assert (found["results"], found["results_bytes"]) == (1, 2)
    assert call_json("cache", "clear", "abc") == {"freed_bytes": 0}  # a prefix is one of views
    assert call_json("cache")["results"] == 1
    assert call_json("cache", "clear") == {"freed_bytes": 2}
    assert call_json("cache")["results"] == 0
    assert (own_cache / "data").is_dir()  # fetched rows stay


# Mistakes


MISTAKES = {
    "embed {tmp}/nowhere {txt} -o {out}": ("nowhere: no such model folder", "give a folder with a config.json"),
    "embed {tmp} {txt} -o {out}": ("no config.json", "give the folder of a transformers or"),
    "embed no-such-model {txt} -o {out}": ("no-such-model: not a folder here", "check the name and the network"),
    "info {tmp}/nowhere": ("nowhere: no such model folder",),
    "demo {tmp}/nowhere -o {out}": ("nowhere: no such model folder",),
    "embed {bert} {tmp}/nowhere.csv -o {out}": ("nowhere.csv: no such file",),
    "embed {bert} {csv} --column txt -o {out}": ("rows.csv: no column 'txt'; it has 'id', 'text'",),
    "embed nowhere-at-all {csv} --column text --column id -o {out}": ("--column is given 2 times", "join text and id"),
    "embed {bert} {csv} --keep note -o {out}": ("rows.csv: no column 'note'; it has 'id', 'text'",),
    "embed {bert} {txt} --mix lastt -o {out}": ("'lastt' is not a layer", "'last'", "'first-last'", "'@ cls'"),
    "embed {bert} {txt} --mix last@mid -o {out}": ("Unknown token pooling 'mid'", "cls, last, mask, max, mean"),
    "embed {bert} {txt} --mix 1,5 -o {out}": ("There is no layer 5", "layers 0 to 4, or -5 to -1 from the last"),
    "embed {bert} {txt} --dtype float12 -o {out}": ("Unknown dtype 'float12'", "float32, bfloat16, float16"),
    "info {bert} --dtype float12": ("Unknown dtype 'float12'", "float32, bfloat16, float16"),
    "embed {bert} {txt} --device gpu -o {out}": ("device 'gpu' cannot be used here", "try --device cpu"),
    "info {bert} --device cuda:99": ("device 'cuda:99' cannot be used here", "try --device cpu"),
    "embed {bert} {txt} --backend tf -o {out}": ("Unknown backend 'tf'. Known: onnx, torch",),
    "embed {bert} {empty} -o {out}": ("empty.csv: the file is empty; expected a header row",),
    "embed {bert} {tmp}/empty.txt -o {out}": ("empty.txt: no rows to embed",),
    "embed {bert} {txt} --format csv -o {out}": ("Unknown output format 'csv'. Known: parquet, npy",),
    "embed {bert} {txt} --input-format cvs -o {out}": ("Unknown input format 'cvs'. Did you mean 'csv'?",),
    "embed {bert} {tmp}/rows.xlsx -o {out}": ("rows.xlsx", "--input-format csv|jsonl|parquet|text|tsv"),
    "embed {bert} {txt} -o {tmp}": ("holds other files", "give an empty or new folder"),
    "embed {bert} {txt} -o {txt}": ("rows.txt: only .parquet and .npy files are written",),
    "embed {bert} {txt} --max-length 99 -o {out}": ("max_length 99 is not possible", "2 to 60 tokens"),
    "embed {bert} {txt} --truncate-dim 99 -o {out}": ("truncate_dim 99 is not possible", "32 dimensions"),
    "embed {bert} {tmp}/latin.txt -o {out}": ("latin.txt:2: not UTF-8", "save the file as UTF-8"),
    "embed {bert} {tmp}/gap.txt -o {out}": ("gap.txt:2: the text must not be empty", "--empty skip or --empty keep"),
}


@pytest.fixture
def places(tmp_path, tiny_bert) -> dict[str, Path]:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "rows.xlsx").touch()
    (tmp_path / "empty.csv").touch()
    (tmp_path / "latin.txt").write_bytes(b"a river\nna\xefve\n")
    (tmp_path / "gap.txt").write_text("a river\n\na door\n")
    files = {"txt": make(tmp_path / "rows.txt"), "csv": make(tmp_path / "rows.csv"), "empty": tmp_path / "empty.csv"}
    return {"tmp": tmp_path, "bert": tiny_bert, "out": tmp_path / "out", **files}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, capfd, places, command):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    ended = run_main(monkeypatch, capfd, *command.format(**places).split())
    assert_one_line(*ended, *MISTAKES[command])


def test_the_same_from_a_shell(places):
    command = "embed {tmp}/nowhere {txt} -o {out}"
    done = subprocess.run([*COMMAND, *command.format(**places).split()], capture_output=True, text=True, check=False)
    assert_one_line(done.returncode, done.stdout, done.stderr, *MISTAKES[command])


@pytest.mark.parametrize("arguments", [["embed"], ["nonsense"], ["embed", "a", "b", "-o", "c", "--shard-rows", "x"]])
def test_wrong_use_is_exit_code_2_and_says_where_help_is(monkeypatch, capfd, arguments):
    assert_one_line(*run_main(monkeypatch, capfd, *arguments), "; see `layerwise ", "--help`")


def test_no_flag_is_shown_as_if_it_took_a_value():
    def flags(command):
        for below in getattr(command, "commands", {}).values():
            yield from flags(below)
        completion = {"install_completion", "show_completion"}
        yield from (one for one in command.params if getattr(one, "is_flag", False) and one.name not in completion)

    names = {flag.name: flag.metavar for flag in flags(get_command(app))}
    assert set(names) > {"as_json", "overwrite", "resume", "version"}
    assert set(names.values()) == {""}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(28, "No space left on device", "/full/model"), "error: /full/model: No space left on device; check"),
        (PermissionError(13, "Permission denied"), "error: a file: Permission denied; check the path, its permissions"),
        (MemoryError(), "error: not enough memory; use smaller batches"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), "error: not enough memory; use"),
        (RuntimeError("can't start new thread"), "error: not enough memory; use smaller batches"),
        (ImportError("x.so: failed to map segment from shared object"), "error: not enough memory; use smaller"),
        (OSError(12, "Cannot allocate memory"), "error: not enough memory; use smaller batches"),
    ],
)
def test_a_fault_of_the_machine_is_one_line(monkeypatch, capfd, fault, message):
    def fail(*_arguments):
        raise fault

    monkeypatch.setattr("layerwise.encoder.cache.ViewCache.entries", fail)
    assert_one_line(*run_main(monkeypatch, capfd, "cache"), message)


def test_another_error_of_the_program_is_not_taken_for_a_lack_of_memory(monkeypatch, capfd):
    def fail(*_arguments):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr("layerwise.encoder.cache.ViewCache.entries", fail)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run_main(monkeypatch, capfd, "cache")


def test_sigterm_ends_a_command_as_an_error_does(monkeypatch, capfd, tmp_path):
    def stop(_cache):
        with atomic_file(tmp_path / "half.txt") as building:
            building.write_text("half")
            os.kill(os.getpid(), signal.SIGTERM)
            return iter(())

    monkeypatch.setattr("layerwise.encoder.cache.ViewCache.entries", stop)
    code, output, _ = run_main(monkeypatch, capfd, "cache")
    assert (code, output) == (143, "")
    assert list(tmp_path.glob(".half*")) == []
    assert not (tmp_path / "half.txt").exists()


def test_a_sigterm_that_python_swallows_is_sent_again(monkeypatch, capfd):
    class Stopped:
        def __del__(self):  # what it raises is ignored by Python
            os.kill(os.getpid(), signal.SIGTERM)

    def stop(_cache):
        del_this = Stopped()
        del del_this
        threading.Event().wait(60)

    monkeypatch.setattr("layerwise.encoder.cache.ViewCache.entries", stop)
    hook = sys.unraisablehook
    code, output, error = run_main(monkeypatch, capfd, "cache")
    assert (code, output, error) == (143, "", "")
    assert sys.unraisablehook is hook
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


NOT_THERE = [
    "embed {bert} {tmp}/nope.csv -o {out}",
    "embed {tmp}/nowhere {txt} -o {out}",
    "fit {bert} {tmp}/nope.csv -o {out}",
    "predict {bert} {tmp}/nope.csv -o {out}.csv",
    "search {bert} {tmp}/nope.csv",
    "search {tmp}/nowhere {tmp}/nope.csv",
    "analyze {bert} --pairs {tmp}/nope.csv",
    "report {bert} --pairs {tmp}/nope.csv -o {tmp}/r.html",
    "evaluate {tmp}/nowhere",
    "evaluate {bert} --tasks {tmp}/nope.toml",
    "compare {tmp}/nope.json {tmp}/nope.json",
    "train {tmp}/nope.toml",
]


def test_a_file_that_is_not_there_is_said_before_torch_is_loaded(places):
    """Each command by the entry point, one after the other in a process that has imported nothing else."""
    code = """
import sys
from layerwise.cli.app import main
for command in sys.argv[1:]:
    sys.argv = ["layerwise", *command.split()]
    try:
        main()
    except SystemExit as ended:
        heavy = sorted({"torch", "transformers", "sentence_transformers"} & set(sys.modules))
        print("exit code", ended.code, heavy, file=sys.stderr, flush=True)
"""
    words = [sys.executable, "-c", code, *(command.format(**places) for command in NOT_THERE)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(NOT_THERE)
    for command, error, ended in zip(NOT_THERE, lines[::2], lines[1::2], strict=True):
        assert error.startswith("error: "), command
        assert "no such" in error or "cannot be read" in error, command
        assert ended == "exit code 2 []", command


# demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[Path, str, str]:
    """A first demonstration for programs, and over it a second, from cached views, for people."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERWISE_CACHE", str(folder / "cache"))
        first = call("demo", "-o", folder / "out", "--no-report", "--json")
        table = pq.read_table(folder / "out" / "corpus")
        second = call("demo", "-o", folder / "out", "--no-report")
        assert pq.read_table(folder / "out" / "corpus") == table
    return folder / "out", first, second


@pytest.mark.slow  # of the embedded model; test_demo_story has a tiny one
def test_demo_gives_json_that_every_program_reads(demo):
    check_schema(strict_json(demo[1]), "demo")


@pytest.mark.slow  # of the embedded model; test_demo_story has a tiny one
def test_demo_scores_every_layer_and_mix(demo):
    said = json.loads(demo[1])
    assert said["encoder"] == "all-MiniLM-L6-v2"
    assert said["protocol"]["choosing"] + said["protocol"]["reporting"] >= 240
    assert len(said["scores"]) == (7 + 6) * 3, "seven layers and six mixes, three poolings each"
    assert {"layers", "pooling", "mix", "score"} == set(said["scores"][0])
    last = next(s for s in said["scores"] if (s["layers"], s["pooling"]) == ("6", "mean"))
    assert last["score"] == pytest.approx(said["last"]["test"], abs=1e-4), "a layer has one score"
    assert said["chosen"]["dev"] >= said["last"]["dev"] > 0.3, "the default model agrees with people"


@pytest.mark.slow  # of the embedded model; test_demo_story has a tiny one
def test_demo_is_the_search_of_the_library_and_of_the_command(demo, monkeypatch):
    said, rows = json.loads(demo[1]), demo_rows()
    monkeypatch.setenv("LAYERWISE_CACHE", str(demo[0].parent / "cache"))
    selection = Search(poolings=("mean", "cls", "max")).fit(LayerModel.load("default"), rows).selection_
    assert said["candidates"] == selection.candidates == f"{3 * 127} sets"
    protocol = said["protocol"]
    assert (protocol["choosing"], protocol["reporting"], protocol["splits"]) == (140, 140, 1)
    for name, choice in (("chosen", selection.chosen), ("last", selection.last)):
        assert said[name]["mix"] == str(choice.mix)
        assert (said[name]["dev"], said[name]["test"]) == pytest.approx((choice.dev, choice.test), abs=1e-4)
    assert said["gain"]["mean"] == pytest.approx(said["chosen"]["test"] - said["last"]["test"], abs=1e-9)
    assert said["verdict"]["text"] == str(selection.verdict)
    assert said["warnings"] == selection.warnings
    named = [score for score in said["scores"] if "concat" not in score["layers"] and score["score"] is not None]
    mixes = [parse_mix(score["mix"]) for score in named]
    assert len(mixes) == 35, "all but three concatenations and layer 0's first token, which is always the same"
    assert [score["score"] for score in named] == pytest.approx(selection.scorer.unseen_scores(mixes).mean(1), abs=1e-4)


@pytest.mark.slow  # of the embedded model; test_demo_story has a tiny one
def test_demo_saves_the_model_that_the_verdict_names(demo):
    out, said = demo[0], json.loads(demo[1])
    assert said["saved"] == str(out / "model")
    model = LayerModel.load(out / "model")
    assert str(model.mix) == said["verdict"]["use"]
    assert said["verdict"]["text"] in model.chosen
    assert model.normalize, "as the default model does"


@pytest.mark.slow  # of the embedded model; test_demo_story has a tiny one
def test_demo_embeds_and_searches_the_corpus(demo):
    out, said = demo[0], json.loads(demo[1])
    model, texts = LayerModel.load(out / "model"), pq.read_table(out / "corpus")["text"].to_pylist()
    assert texts == demo_corpus()
    corpus = embeddings(out / "corpus")
    assert np.abs(corpus - model.encode(texts)).max() < 1e-5
    for query, hits in said["answers"].items():
        scores = model.similarity(model.encode_query([query]), corpus)[0].numpy()
        best = np.argsort(-scores)[:3]
        assert [hit["text"] for hit in hits] == [texts[row] for row in best]
        assert [hit["score"] for hit in hits] == pytest.approx(scores[best], abs=1e-3)


@pytest.mark.slow  # of the embedded model; test_demo_story has a tiny one
def test_demo_again_tells_people_the_same(demo):
    said = json.loads(demo[1])
    told = " ".join(demo[2].split())
    assert f"choose {said['chosen']['mix']} among 381 sets of layers" in told
    best, last = (100 * said[name]["test"] for name in ("chosen", "last"))
    assert f"has {best:.1f} on the pairs of step 1, the last layer {last:.1f}." in told
    assert said["verdict"]["text"] in told
    assert all(f"Note: {warning}." in told for warning in said["warnings"])
    assert all(hit["text"][:30] in demo[2] for hits in said["answers"].values() for hit in hits)
