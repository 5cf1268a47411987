"""The ONNX backend gives torch's numbers, exports a graph once, keeps small ones, and mends damaged ones."""

import importlib.util
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from layerwise import LayerEncoder
from layerwise.encoder import graphs_folder, layer_encoder
from layerwise.encoder import onnx as onnx_module
from layerwise.errors import InputError, LayerwiseError, MissingExtraError, ModelError
from support.slow_cases import one_in, some_slow
from support.tiny import DEPTH, SENTENCES, WIDTH, WORDS

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TOLERANCE = 1e-4
LONG = " ".join(WORDS * 4)
CHOICES = {
    "all": ({}, ["mean", "cls", "max"]),
    "last": ({"layers": [-1]}, ["mean"]),
    "low, out of order": ({"layers": [2, 0]}, ["max", "cls"]),
}


def load(folder, **options) -> LayerEncoder:
    return LayerEncoder(folder, device="cpu", backend="onnx", **options)


def graphs() -> list[str]:
    return sorted(path.name for path in graphs_folder().glob("*.onnx"))


@pytest.fixture(scope="session")
def kept(tiny_folders, tmp_path_factory):
    """Exported once for all tests that only read."""
    folder = tmp_path_factory.mktemp("kept")
    before = os.environ.get("LAYERWISE_CACHE")
    os.environ["LAYERWISE_CACHE"] = str(folder)
    try:
        load(tiny_folders["bert"]).encode_layers(SENTENCES)
    finally:
        os.environ.pop("LAYERWISE_CACHE") if before is None else os.environ.update(LAYERWISE_CACHE=before)
    return folder


@pytest.fixture
def graph(kept, own_cache):
    """The file of bert's graph for all layers, in a cache that this test may damage."""
    shutil.copytree(kept, own_cache)
    (path,) = graphs_folder().glob("*.onnx")
    return path


@pytest.fixture
def exports(monkeypatch) -> list[str]:
    """One entry for each graph that is exported."""
    done, export = [], torch.onnx.export
    monkeypatch.setattr(
        torch.onnx, "export", lambda *args, **options: done.append("export") or export(*args, **options)
    )
    return done


@pytest.mark.parametrize(
    ("name", "choice"),
    one_in(
        2,
        some_slow(
            [
                *(("bert", choice) for choice in CHOICES),
                ("mpnet", "all"),
                ("modernbert", "all"),
                ("modernbert", "last"),
            ],
            slow=[("bert", "last"), ("modernbert", "all")],
        ),
    ),
)
def test_onnx_gives_torchs_numbers_whatever_the_batch(name, choice, tiny_folders):
    options, poolings = CHOICES[choice]
    texts = [*SENTENCES, "", LONG]
    expected = LayerEncoder(tiny_folders[name], device="cpu").encode_layers(texts, poolings, **options)
    encoder = load(tiny_folders[name])
    for budget in (1, 50, 4096):
        encoder.budget.tokens = budget
        for pooling, found in encoder.encode_layers(texts, poolings, **options).items():
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected[pooling], rtol=0, atol=TOLERANCE)
    assert len(graphs()) == 1, "one graph for every shape of a batch"


def kinds(path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def test_attention_is_one_operator(graph):
    model = onnx.load(graph)
    attention = [node for node in model.graph.node if node.op_type == "Attention"]
    assert len(attention) == DEPTH
    assert "Softmax" not in kinds(graph)
    used = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= used, "no weight is stored twice"


@pytest.mark.parametrize("name", some_slow(["mpnet", "modernbert"], slow=["modernbert"]))
def test_attention_of_another_form_is_not_fused(name, tiny_folders):
    load(tiny_folders[name]).encode_layers(SENTENCES, layers=[1])
    (path,) = graphs_folder().glob("*.onnx")
    assert "Softmax" in kinds(path)
    assert "Attention" not in kinds(path)


def test_attention_is_not_fused_if_the_numbers_would_differ(tiny_bert, monkeypatch, caplog):
    fuse = onnx_module.fuse_attention
    monkeypatch.setattr(onnx_module, "fuse_attention", lambda model, _heads: fuse(model, 1))
    with caplog.at_level("INFO", logger="layerwise"):
        views = load(tiny_bert).encode_layers(SENTENCES)
    np.testing.assert_allclose(
        views, LayerEncoder(tiny_bert, device="cpu").encode_layers(SENTENCES), rtol=0, atol=TOLERANCE
    )
    assert "The attention of BertModel is not fused, as its numbers would differ" in caplog.text
    (path,) = graphs_folder().glob("*.onnx")
    assert "Softmax" in kinds(path)


def test_torch_does_not_run_once_the_graph_is_there(tiny_bert, graph):
    encoder = load(tiny_bert)
    expected = encoder.encode_layers(SENTENCES)
    encoder.model.register_forward_pre_hook(lambda *_: pytest.fail("torch ran"))
    np.testing.assert_array_equal(encoder.encode_layers(SENTENCES), expected)


def test_a_graph_is_exported_once(tiny_bert, exports):
    first = load(tiny_bert)
    views = first.encode_layers(SENTENCES)
    first.encode_layers(SENTENCES[:2])
    assert len(exports) == 1
    np.testing.assert_array_equal(load(tiny_bert).encode_layers(SENTENCES), views)
    assert len(exports) == 1, "the second encoder finds the file"
    assert len(graphs()) == 1
    first.encode_layers(SENTENCES, "cls")
    assert len(exports) == len(graphs()) == 2, "another pooling is another graph"


def test_two_encoders_export_at_a_time(tiny_bert, own_cache):
    encoders = [load(tiny_bert), load(tiny_bert)]
    with ThreadPoolExecutor(2) as threads:
        low, high = threads.map(lambda n: encoders[n].encode_layers(SENTENCES, layers=[1 + n]), range(2))
    expected = LayerEncoder(tiny_bert, device="cpu").encode_layers(SENTENCES, layers=[1, 2])
    np.testing.assert_allclose(np.concatenate([low, high], axis=1), expected, rtol=0, atol=TOLERANCE)
    assert len(graphs()) == 2


def test_a_mix_of_low_layers_gives_a_smaller_file(tiny_bert, graph):
    whole = graph.stat().st_size
    load(tiny_bert).encode_layers(SENTENCES, layers=[0, 1])
    (low,) = (path.stat().st_size for path in graphs_folder().glob("*.onnx") if path != graph)
    block = 4 * (4 * WIDTH * WIDTH + 2 * 48 * WIDTH)
    assert low < whole - (DEPTH - 1) * block, "three of the four blocks must be gone"


def test_other_weights_have_their_own_graph(tiny_bert, graph):
    encoder = load(tiny_bert)
    with torch.no_grad():
        encoder.model.embeddings.word_embeddings.weight.mul_(2)
    fresh = LayerEncoder(tiny_bert, device="cpu")
    fresh.model.load_state_dict(encoder.model.state_dict())
    np.testing.assert_allclose(encoder.encode_layers(SENTENCES), fresh.encode_layers(SENTENCES), rtol=0, atol=TOLERANCE)
    assert len(graphs()) == 2


def test_weights_changed_after_the_first_call_are_seen(tiny_bert, graph):
    encoder = load(tiny_bert)
    before = encoder.encode_layers(SENTENCES)
    with torch.no_grad():
        encoder.model.embeddings.word_embeddings.weight.mul_(2)
    assert np.abs(encoder.encode_layers(SENTENCES) - before).max() > 0.1


def change_a_weight(path) -> None:
    """Damage that can still be read: the embedding of the word "river" is another."""
    model = onnx.load(path)
    (table,) = (w for w in model.graph.initializer if w.name.endswith("word_embeddings.weight"))
    values = onnx.numpy_helper.to_array(table).copy()
    values[WORDS.index("river") + 5] += 1.0 + np.arange(WIDTH)
    table.CopyFrom(onnx.numpy_helper.from_array(values, table.name))
    onnx.save(model, path)


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def empty(path) -> None:
    path.write_bytes(b"")


def fill_with_text(path) -> None:
    path.write_text("this is no graph\n" * 50)


def replace_by_another_graph(path) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Abs", ["x"], ["y"])], "other", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


DAMAGES = [cut, empty, fill_with_text, replace_by_another_graph, change_a_weight]


@pytest.mark.parametrize("damage", some_slow(DAMAGES, slow=[cut, empty, fill_with_text]))  # test_int8.py cuts one
def test_a_damaged_graph_is_refused_and_exported_again(damage, tiny_bert, graph, exports, caplog):
    damage(graph)
    expected = LayerEncoder(tiny_bert, device="cpu").encode_layers(SENTENCES)
    found = load(tiny_bert).encode_layers(SENTENCES)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    assert len(exports) == 1
    assert f"{graph}: the cached graph is damaged and is exported again" in caplog.text


def test_an_interrupted_export_leaves_nothing(tiny_bert, monkeypatch):
    def interrupted(_graph, _inputs, path, **_options) -> None:
        with open(path, "wb") as file:  # noqa: PTH123 - a path as torch gets it
            file.write(b"half a graph")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.onnx, "export", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(tiny_bert).encode_layers(SENTENCES)
    assert [path for path in graphs_folder().iterdir() if path.suffix != ".lock"] == []


def test_a_folder_that_can_not_be_written_is_refused(tiny_bert, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "file"))
    with pytest.raises(LayerwiseError, match="LAYERWISE_CACHE"):
        load(tiny_bert).encode_layers(SENTENCES)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_its_install_line(package, tiny_bert, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("layerwise.extras.find_spec", lambda name: None if name == package else find_spec(name))
    with pytest.raises(MissingExtraError, match=r"the ONNX backend needs onnx.*: pip install 'layerwise\[onnx\]'"):
        load(tiny_bert)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_dtypes_are_refused(dtype, tiny_bert):
    with pytest.raises(
        InputError, match=f"The ONNX backend runs float32 on the CPU, not {dtype} on cpu; use the torch"
    ):
        load(tiny_bert, dtype=dtype)


def test_other_devices_are_refused(tiny_bert, monkeypatch):
    monkeypatch.setattr(layer_encoder, "pick_device", lambda _: torch.device("meta"))
    with pytest.raises(InputError, match="The ONNX backend runs float32 on the CPU, not float32 on meta"):
        LayerEncoder(tiny_bert, backend="onnx")


def test_a_shortage_of_memory_is_known_as_one():
    from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

    from layerwise.encoder.onnx_sessions import run_session

    class Full:
        def run(self, *_):
            raise RuntimeException("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer")

    class Broken:
        def run(self, *_):
            raise RuntimeException("[ONNXRuntimeError] : 6 : something else")

    tokens = torch.ones(1, 2, dtype=torch.long)
    with pytest.raises(MemoryError, match="Failed to allocate"):
        run_session(Full(), tokens, tokens)
    with pytest.raises(ModelError, match=r"ONNX Runtime failed: .*; use the torch backend"):
        run_session(Broken(), tokens, tokens)
