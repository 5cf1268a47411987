"""int8 graphs stay near the float ones, are made once with their loss, and never mix with float views."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import torch

from layerwise import LayerEncoder, LayerModel
from layerwise.encoder import ViewCache, graphs_folder, int8_reader, int8_steps
from layerwise.encoder.int8 import quantise
from layerwise.encoder.int8_loss import stored_loss
from layerwise.encoder.int8_plan import Int8Plan, choose_plan
from layerwise.encoder.int8_steps import FULL, REDUCED
from layerwise.errors import InputError, MixError, ModelError
from support.commands import COMMAND, refused
from support.commands import call as run
from support.pair_files import made_up_sentences, write
from support.tiny import DEPTH, SENTENCES

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

TOLERANCE = 0.08  # of the largest number of a layer
FIRST = "encoder.layer.0.output.dense"


def load(folder, **options) -> LayerEncoder:
    return LayerEncoder(folder, device="cpu", precision="int8", **options)


@pytest.fixture(scope="session")
def made(tiny_folders, tmp_path_factory):
    """A cache with bert's int8 graph of all layers, made once for all tests."""
    folder = tmp_path_factory.mktemp("int8")
    before = os.environ.get("LAYERWISE_CACHE")
    os.environ["LAYERWISE_CACHE"] = str(folder)
    try:
        load(tiny_folders["bert"]).encode_layers(SENTENCES)
    finally:
        os.environ.pop("LAYERWISE_CACHE") if before is None else os.environ.update(LAYERWISE_CACHE=before)
    return folder


@pytest.fixture
def graph(made, own_cache):
    """The file of that graph, in a cache that this test may change."""
    shutil.copytree(made, own_cache)
    (path,) = graphs_folder().glob("*-int8-*.onnx")
    return path


def assert_near(views, expected) -> None:
    largest = np.abs(expected).max((0, 2), keepdims=True)
    assert (np.abs(views - expected) <= TOLERANCE * largest).all()
    assert not np.array_equal(views, expected)


@pytest.mark.parametrize(
    "poolings",
    [["mean"], pytest.param(["cls", "max"], marks=pytest.mark.slow)],  # encoder/test_onnx.py has graphs of several
)
def test_every_layer_is_near_float(tiny_bert, graph, poolings):
    expected = LayerEncoder(tiny_bert, device="cpu").encode_layers(SENTENCES, poolings)
    for name, views in load(tiny_bert).encode_layers(SENTENCES, poolings).items():
        assert views.shape == expected[name].shape == (len(SENTENCES), DEPTH + 1, views.shape[2])
        np.testing.assert_allclose(views[:, 0], expected[name][:, 0], atol=1e-5)  # embeddings are not quantised
        assert_near(views[:, 1:], expected[name][:, 1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpnet", "modernbert"])
def test_other_architectures_are_near_float(name, tiny_folders):
    expected = LayerEncoder(tiny_folders[name], device="cpu").encode_layers(SENTENCES, layers=[2, -1])
    assert_near(load(tiny_folders[name]).encode_layers(SENTENCES, layers=[2, -1]), expected)


def test_the_graph_and_its_plan_are_made_once(tiny_bert, graph, monkeypatch):
    monkeypatch.setattr(int8_reader, "quantise", lambda *_: pytest.fail("quantised again"))
    monkeypatch.setattr("layerwise.encoder.int8_plan.choose_plan", lambda *_: pytest.fail("chosen again"))
    assert load(tiny_bert).encode_layers(SENTENCES).shape[1] == DEPTH + 1


def test_the_loss_is_logged_and_stored_beside_the_graph(tiny_bert, caplog):
    with caplog.at_level("INFO", logger="layerwise"):
        load(tiny_bert).encode_layers(SENTENCES, layers=[1, 2])
    assert "linear layers of BertModel, once" in caplog.text
    assert "BertModel in int8: cosine with float 0.99" in caplog.text
    (path,) = graphs_folder().glob("*-int8-*.onnx")
    facts = json.loads(path.with_suffix(".json").read_text())
    assert len(facts["cosine"]) == len(facts["points_float"]) == len(facts["points_int8"]) == 2
    assert facts["pairs"] == 280
    assert facts["sha256"] == path.with_suffix(".sha256").read_text()


def test_the_loss_is_logged_again_at_every_use(tiny_bert, graph, tmp_path, caplog):
    """It is read from its file: nothing is measured again."""
    stored = json.loads(graph.with_suffix(".json").read_text())
    stored["points_int8"][-1] = stored["points_float"][-1] - 1.25
    graph.with_suffix(".json").write_text(json.dumps(stored))
    encoder = load(tiny_bert)
    with caplog.at_level("INFO", logger="layerwise"):
        encoder.encode_layers(SENTENCES)
        encoder._onnx._sessions.clear()  # as for another number of cores
        encoder.encode_layers(SENTENCES)
    assert caplog.text.count("BertModel in int8: cosine with float 0.99") == 1
    assert "on 280 pairs (-1.25)" in caplog.text
    caplog.clear()
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES) + "\n")
    pairs = enumerate(zip(*made_up_sentences(), strict=True))
    write(tmp_path / "pairs.csv", [{"sentence1": a, "sentence2": b, "score": n % 6} for n, (a, b) in pairs])
    (tmp_path / "task.toml").write_text('[[task]]\nname = "own"\nkind = "sts"\nfile = "pairs.csv"\n')
    for command in (  # the search reads the views that the evaluation has cached
        ("embed", tiny_bert, tmp_path / "texts.txt", "-o", tmp_path / "out", "--mix", f"0-{DEPTH}"),
        ("evaluate", tiny_bert, "--tasks", tmp_path / "task.toml", "--layers", "each", "--pooling", "mean"),
        ("search", tiny_bert, tmp_path / "pairs.csv"),
    ):
        with caplog.at_level("INFO", logger="layerwise"):
            run(*command, "--precision", "int8")
        assert caplog.text.count("on 280 pairs (-1.25)") == 1, command[0]
        caplog.clear()


@pytest.mark.slow  # three processes that load torch
def test_one_of_several_processes_reports_the_loss(tiny_bert, graph, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES * 20) + "\n")
    options = ["-o", tmp_path / "out", "--precision", "int8", "--processes", "2"]
    done = subprocess.run(
        [*COMMAND, "embed", tiny_bert, tmp_path / "texts.txt", *options], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("BertModel in int8: cosine with float 0.99") == 1


def test_a_graph_without_its_loss_is_made_again_once(tiny_bert, graph, caplog):
    path, expected = graph.with_suffix(".json"), load(tiny_bert).encode_layers(SENTENCES)
    facts = path.read_text()
    path.unlink()
    with caplog.at_level("INFO", logger="layerwise"):
        np.testing.assert_array_equal(load(tiny_bert).encode_layers(SENTENCES), expected)
    assert f"{graph}: the cached int8 graph is made again, once: its loss against float is not stored" in caplog.text
    assert path.read_text() == facts
    caplog.clear()
    load(tiny_bert).encode_layers(SENTENCES)
    assert "made again" not in caplog.text


def test_a_damaged_loss_or_that_of_another_graph_is_none(graph):
    path = graph.with_suffix(".json")
    facts = json.loads(path.read_text())
    digest = facts["sha256"]
    assert stored_loss(path, digest).cosine == facts["cosine"]
    assert stored_loss(path, "0" * 64) is None
    changes = ({"pairs": None}, {"cosine": []}, {"points_int8": ["high"]}, {"points_float": 3})
    for text in ("{", "[]", *(json.dumps(facts | change) for change in changes)):
        path.write_text(text)
        assert stored_loss(path, digest) is None, text
    path.write_text(json.dumps(facts | {"points_float": [None, 1.5]}))  # a constant layer has no correlation
    assert np.isnan(stored_loss(path, digest).points_float[0])


@pytest.mark.parametrize("steps", [FULL, REDUCED])
def test_most_weights_are_int8(graph, tmp_path, steps):
    (source,) = (path for path in graphs_folder().glob("*.onnx") if "int8" not in path.name)
    quantise(source, tmp_path / "graph.onnx", Int8Plan((), {}, steps))
    made = onnx.load(tmp_path / "graph.onnx").graph
    kinds = {node.op_type for node in made.node}
    assert {"MatMulInteger", "QAttention"} <= kinds
    assert not kinds & {"Attention", "MultiHeadAttention", "Softmax", "MatMulNBits"}
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in made.initializer]
    largest = [np.abs(weight.astype(int)).max() for weight in weights if weight.dtype == np.int8 and weight.ndim == 2]
    assert largest == [steps] * (4 * DEPTH)
    assert graph.stat().st_size < source.stat().st_size


def test_the_largest_products_of_a_weight_are_exact():
    activations = np.full((3, 64), 255, dtype=np.uint8)
    steps = int8_steps.weight_steps()
    assert steps in (FULL, REDUCED)
    assert (int8_steps._products(activations, steps) == 255 * 64 * steps).all()


def test_weights_have_half_the_steps_where_the_processor_cuts_products_off(monkeypatch):
    def saturating(activations, weight):  # as x86 adds two products without VNNI
        pairs = (activations.astype(int) * weight).reshape(len(activations), -1, 2).sum(2)
        return pairs.clip(-(2**15), 2**15 - 1).sum(1, keepdims=True)

    monkeypatch.setattr(int8_steps, "_products", saturating)
    assert int8_steps.weight_steps.__wrapped__() == REDUCED
    activations = np.full((1, 64), 255)
    assert saturating(activations, REDUCED) == 255 * 64 * REDUCED
    monkeypatch.setattr(int8_steps, "_products", lambda activations, weight: activations.astype(int).sum(1) * weight)
    assert int8_steps.weight_steps.__wrapped__() == FULL


def test_views_of_either_precision_are_cached_apart(tiny_bert, graph, tmp_path):
    cache = ViewCache(tmp_path / "views")
    encoders = [
        LayerEncoder(tiny_bert, device="cpu"),
        LayerEncoder(tiny_bert, device="cpu", backend="onnx"),
        load(tiny_bert),
    ]
    views = [encoder.encode_layers(SENTENCES, cache=cache) for encoder in encoders]
    assert len(list(cache.entries())) == 3
    assert not np.array_equal(views[1], views[2])
    assert len({LayerModel(encoder).digest() for encoder in encoders}) == 3


def test_another_plan_is_another_digest(graph, tiny_bert):
    assert len({Int8Plan((FIRST,), {}).digest, Int8Plan((), {}, FULL).digest, Int8Plan((), {}, REDUCED).digest}) == 3
    assert load(tiny_bert).arithmetic.startswith("onnx-int8-")


@pytest.mark.slow  # encoder/test_onnx.py shows it of float graphs
def test_weights_changed_after_the_first_call_are_seen(tiny_bert, graph):
    encoder = load(tiny_bert)
    before, arithmetic = encoder.encode_layers(SENTENCES), encoder.arithmetic
    with torch.no_grad():
        encoder.model.embeddings.word_embeddings.weight.mul_(2)
    assert np.abs(encoder.encode_layers(SENTENCES) - before).max() > 0.1
    assert arithmetic.startswith("onnx-int8-")


@pytest.mark.slow
def test_a_damaged_graph_and_a_damaged_plan_are_made_again(tiny_bert, graph, caplog):
    expected = load(tiny_bert).encode_layers(SENTENCES)
    graph.write_bytes(graph.read_bytes()[:1000])
    (plan,) = graphs_folder().glob("*.int8.json")
    plan.write_text("{")
    np.testing.assert_array_equal(load(tiny_bert).encode_layers(SENTENCES), expected)
    assert f"{graph}: the cached graph is damaged" in caplog.text


@pytest.mark.slow
def test_the_layer_with_the_largest_error_is_blockwise(tiny_bert):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    with torch.no_grad():
        encoder.model.get_submodule(FIRST).weight[:, 0] *= 300  # one weight column sets the scale of all
    plan = choose_plan(encoder.model, encoder.encode_layers)
    assert FIRST in plan.blockwise
    assert len(plan.blockwise) < len(plan.errors) / 4
    assert sum(error for name, error in plan.errors.items() if name not in plan.blockwise) < 0.0125 < plan.errors[FIRST]
    assert not encoder.model.get_submodule(FIRST)._forward_hooks


def test_blockwise_is_nearer_to_float_than_dynamic(tiny_bert, tmp_path):
    encoder = LayerEncoder(tiny_bert, device="cpu", backend="onnx")
    expected = encoder.encode_layers(SENTENCES)
    (source,) = graphs_folder().glob("*.onnx")
    names = [n for n, m in encoder.model.named_modules() if isinstance(m, torch.nn.Linear) and "encoder" in n]
    errors = []
    for blockwise in (names, []):
        quantise(source, tmp_path / "graph.onnx", Int8Plan(tuple(blockwise), {}))
        kinds = {node.op_type for node in onnx.load(tmp_path / "graph.onnx").graph.node}
        assert ("MatMulNBits" in kinds) == bool(blockwise)
        (key,) = encoder._onnx._sessions
        encoder._onnx._sessions[key] = ort.InferenceSession(tmp_path / "graph.onnx")
        errors.append(np.abs(encoder.encode_layers(SENTENCES) - expected).mean())
    assert errors[0] < errors[1]


def test_attention_with_a_blockwise_product_has_separate_products(tiny_bert, tmp_path, graph):
    (source,) = (path for path in graphs_folder().glob("*.onnx") if "int8" not in path.name)
    quantise(source, tmp_path / "graph.onnx", Int8Plan(("encoder.layer.1.attention.self.value",), {}))
    kinds = [node.op_type for node in onnx.load(tmp_path / "graph.onnx").graph.node]
    counts = [kinds.count(kind) for kind in ("QAttention", "MultiHeadAttention", "MatMulNBits", "Softmax")]
    assert counts == [DEPTH - 1, 1, 1, 0]


def test_a_model_that_int8_changes_too_much_is_refused(tiny_bert, graph, monkeypatch):
    graph.unlink()  # the float graph and the plan stay
    monkeypatch.setattr(int8_reader, "_LEAST_COSINE", 1.1)
    with pytest.raises(ModelError, match=r"int8 changes this encoder too much \(cosine 1.00 with float\); use float"):
        load(tiny_bert).encode_layers(SENTENCES)
    assert not list(graphs_folder().glob("*-int8-*.onnx"))


def test_the_command_embeds_in_int8(tiny_bert, graph, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES) + "\n")
    mix = f"0-{DEPTH} @ mean"  # by the graph that is there
    run("embed", tiny_bert, tmp_path / "texts.txt", "-o", tmp_path / "out.npy", "--precision", "int8", "--mix", mix)
    expected = LayerModel(load(tiny_bert), mix).encode(SENTENCES)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-6)


def test_the_command_refuses_what_int8_cannot_do(tiny_bert, tmp_path, capsys, monkeypatch):
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES) + "\n")
    words = ("embed", tiny_bert, tmp_path / "texts.txt", "-o", tmp_path / "out", "--precision", "int8")
    said = refused(capsys, monkeypatch, *words, "--backend", "torch")
    assert said == "error: precision int8 runs with the onnx backend, not with torch; leave the backend out"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "torch"}, "precision int8 runs with the onnx backend, not with torch; leave the backend out"),
        ({"dtype": "bfloat16"}, "precision int8 runs on the CPU with dtype float32, not bfloat16 on cpu; leave both"),
        ({"precision": "int4"}, "(?i)unknown precision 'int4'.*float, int8"),
    ],
)
def test_what_int8_cannot_do_is_one_line(options, message, tiny_bert):
    with pytest.raises(InputError, match=message):
        LayerEncoder(tiny_bert, **{"precision": "int8", "device": "cpu"} | options)


def test_a_gpu_is_refused(tiny_bert, monkeypatch):
    monkeypatch.setattr("layerwise.encoder.layer_encoder.pick_device", lambda _: torch.device("cuda"))
    with pytest.raises(InputError, match="precision int8 runs on the CPU with dtype float32, not float32 on cuda"):
        LayerEncoder(tiny_bert, device="cuda", precision="int8")


def test_prompts_and_token_states_are_refused(tiny_bert, graph):
    encoder = load(tiny_bert)
    with pytest.raises(InputError, match="Prompts are read in float, not with precision int8"):
        encoder.encode_layers(SENTENCES, 'mean in "Topic: {text}"')
    with pytest.raises(MixError, match="reads token states, which ONNX graphs don't give"):
        LayerModel(encoder, "wk(start=1,window=2)")


def test_a_model_that_does_not_export_is_one_line(tiny_bert, graph, monkeypatch):
    for path in graphs_folder().glob("*.onnx"):  # the plan stays
        path.unlink()

    def fail(*_arguments, **_options):
        raise RuntimeError("no operator for this")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(ModelError, match=r"cannot be exported to ONNX \(no operator for this\); use the torch backend"):
        load(tiny_bert).encode_layers(SENTENCES)
