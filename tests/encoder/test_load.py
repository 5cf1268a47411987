"""A model folder with a piece missing, damaged or dangerous is refused by name; good ones load the same every time."""

import json
import pickle
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from layerwise import LayerEncoder, LayerModel
from layerwise.encoder import find_model, folders
from layerwise.encoder.folders import check_sha256, embedded_folder
from layerwise.errors import InputError, ModelError
from support.tiny import ARCHITECTURES, DEPTH, SENTENCES, WIDTH, save_tiny, tiny_tokenizer

COMMITS = {"main": "a" * 40, "v2": "b" * 40}


@pytest.fixture
def folder(tiny_bert, tmp_path) -> Path:
    """A whole model that a test may damage."""
    return shutil.copytree(tiny_bert, tmp_path / "model")


@pytest.fixture
def offline(monkeypatch, tmp_path) -> Path:
    """An empty Hugging Face cache and no network; the constants were read when the hub's package was imported."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def load(path) -> LayerEncoder:
    return LayerEncoder(path, device="cpu")


def edit_json(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def test_a_whole_folder_loads(folder):
    encoder = load(folder)
    assert (encoder.depth, encoder.width, encoder.name) == (DEPTH, WIDTH, str(folder))
    assert np.array_equal(encoder.encode_layers(SENTENCES), load(str(folder)).encode_layers(SENTENCES))


@pytest.mark.parametrize("name", ["{}/nothing", "./nothing", "~/no/such/folder", "a/b/c", "{}/model/config.json"])
def test_a_folder_that_is_not_there(name, folder):
    with pytest.raises(ModelError, match=r"no such model folder; give a folder with a config\.json, or a hub name"):
        load(name.format(folder.parent))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("config.json", "no config.json; give the folder of a transformers or sentence-transformers model"),
        ("model.safetensors", "no model.safetensors; the folder is incomplete, or the model has only pickled weights"),
        ("tokenizer.json", r"no tokenizer \(tokenizer.json, vocab.txt, …\); save the tokenizer there too"),
    ],
)
def test_a_missing_file_is_named(file, message, folder):
    (folder / file).unlink()
    with pytest.raises(ModelError, match=f"{folder}: {message}"):
        load(folder)


class _Marker:
    """What a pickle can do to the one who loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "code ran")


def test_pickled_weights_are_refused_and_never_opened(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    marker = tmp_path / "marker"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Marker(marker)))
    with pytest.raises(ModelError, match=r"the weights are pickled \(pytorch_model.bin\).*save them as model.safetens"):
        load(folder)
    assert not marker.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())  # the trap works
    assert marker.exists()


def test_a_pickle_beside_the_safetensors_is_left_alone(folder, tmp_path):
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Marker(tmp_path / "marker")))
    load(folder)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("keep", [0, 3, 100, 5000, -10])
def test_damaged_weights_are_refused(keep, folder):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:keep])
    with pytest.raises(ModelError, match=f"{folder}: the weights cannot be read .*; copy or download them again"):
        load(folder)


def test_weights_without_a_block_are_refused(folder):
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("encoder.layer.2.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    lost = len(tensors) - len(kept)
    assert lost > 0
    with pytest.raises(ModelError, match=rf"the weights lack {lost} of the model's tensors, e.g. encoder\.layer\.2\."):
        load(folder)


def test_weights_of_another_size_are_refused(folder):
    edit_json(folder / "config.json", hidden_size=2 * WIDTH)
    with pytest.raises(ModelError, match=f"{folder}: transformers cannot load this model: .*mismatch"):
        load(folder)


def test_one_missing_shard_is_refused(tmp_path):
    folder = save_tiny("bert", tmp_path / "sharded")
    model = hf.AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert load(folder).depth == DEPTH
    shards[1].unlink()
    with pytest.raises(ModelError, match=f"{folder}: .*{shards[1].name}"):
        load(folder)


@pytest.mark.parametrize("text", ["{", "", '{"model_type": "bert"', "[]", "{}", '{"model_type": "no-such-type"}'])
def test_a_config_that_says_nothing_is_refused(text, folder):
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match=f"{folder}.*: (transformers cannot load|not valid JSON|expected a JSON obj)"):
        load(folder)


@pytest.mark.parametrize("wrong", [{"hidden_size": "big"}, {"num_attention_heads": 5}, {"vocab_size": None}])
def test_a_config_with_wrong_values_is_refused(wrong, folder):
    edit_json(folder / "config.json", **wrong)
    with pytest.raises(ModelError, match=f"{folder}: transformers cannot load this model: "):
        load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "modules.json: not valid JSON"),
        ("\xff", "modules.json: not valid JSON"),
        ("{}", "modules.json: expected a list of modules with a type and a path each"),
        ("[1]", "modules.json: expected a list of modules with a type and a path each"),
        ('[{"path": ""}]', "modules.json: expected a list of modules with a type and a path each"),
        ('[{"type": "sentence_transformers.models.Transformer", "path": "0_Gone"}]', "0_Gone: no config.json"),
        ('[{"type": "sentence_transformers.models.Transformer", "path": null}]', "modules.json: "),
    ],
)
def test_modules_that_make_no_sense_are_refused(text, message, folder):
    (folder / "modules.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelError, match=f"{folder}/{message}"):
        load(folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"max_seq_length": "many"}'])
def test_a_damaged_length_file_is_refused(text, folder):
    (folder / "sentence_bert_config.json").write_text(text)
    with pytest.raises(ModelError, match=r"sentence_bert_config\.json: "):
        load(folder)


@pytest.mark.parametrize("text", ["{", "{}", '{"version": "1.0", "model": {"type": "WordPiece"}, "added_tokens": []}'])
def test_a_damaged_tokenizer_is_refused(text, folder):
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match=f"{folder}: the tokenizer cannot be loaded: "):
        load(folder)


def test_a_model_that_memory_is_too_small_for_is_named(folder, monkeypatch):
    def fail(*_arguments, **_options):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", fail)
    with pytest.raises(ModelError, match="the tokenizer cannot be loaded: not enough memory; free some, or use a"):
        LayerEncoder(folder, device="cpu")


def test_a_tokenizer_of_another_model_is_refused(folder):
    tokenizer = tiny_tokenizer()
    places = len(tokenizer)
    tokenizer.add_tokens(["upstream", "downstream"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match=f"the tokenizer has {places + 2} tokens but the model only {places}"):
        load(folder)


def test_a_tokenizer_with_other_token_types_is_refused(folder):
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = type(tokenizer.backend_tokenizer.post_processor)(
        single="[CLS] $A:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save_pretrained(folder)
    edit_json(folder / "tokenizer_config.json", model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    with pytest.raises(ModelError, match="gives single sentences token types other than 0"):
        load(folder)


def test_a_masked_language_model_without_pooler_loads_the_same_twice(tmp_path):
    torch.manual_seed(3)
    model = hf.BertForMaskedLM(ARCHITECTURES["bert"]()).eval()
    model.save_pretrained(tmp_path)
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    first, second = load(tmp_path), load(tmp_path)
    assert {name: parameter.abs().max().item() for name, parameter in first.model.pooler.named_parameters()} == {
        "dense.weight": 0.0,
        "dense.bias": 0.0,
    }
    assert first.fingerprint() == second.fingerprint()
    with torch.no_grad():
        states = model(**tokenizer(SENTENCES[0], return_tensors="pt"), output_hidden_states=True).hidden_states
    expected = torch.stack([layer[0].mean(0) for layer in states]).numpy()
    np.testing.assert_allclose(first.encode_layers(SENTENCES)[0], expected, rtol=0, atol=1e-5)


def test_fingerprints_tell_models_apart_and_forget_where_they_lay(tiny_folders, folder):
    marks = {name: load(path).fingerprint()[0] for name, path in tiny_folders.items()}
    assert len(set(marks.values())) == len(marks)
    assert load(folder).fingerprint()[0] == marks["bert"]


def hub_snapshot(hub: Path, source: Path, revision: str) -> None:
    """Lay a model out as a download would have left it."""
    root = hub / "models--some-org--tiny-bert"
    shutil.copytree(source, root / "snapshots" / COMMITS[revision])
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / revision).write_text(COMMITS[revision])


def test_safetensors_written_from_a_gguf_file_can_be_saved_again(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    expected = LayerModel.load(folder, device="cpu").encode(["A cat sat."])
    config["quantization_config"] = {"quant_method": "gguf", "gguf_file": "model.gguf", "dequantize": False}
    (folder / "config.json").write_text(json.dumps(config))
    LayerModel.load(folder, device="cpu").save(tmp_path / "saved")
    saved = LayerModel.load(tmp_path / "saved", device="cpu")
    np.testing.assert_array_equal(saved.encode(["A cat sat."]), expected)
    assert "quantization_config" not in json.loads((tmp_path / "saved" / "config.json").read_text())


def test_a_hub_name_is_found_in_the_hubs_cache(offline, tiny_folders):
    hub_snapshot(offline, tiny_folders["bert"], "main")
    hub_snapshot(offline, tiny_folders["electra"], "v2")
    found = load("some-org/tiny-bert")
    assert found.name == "some-org/tiny-bert"
    assert found.folder.root.name == COMMITS["main"]
    np.testing.assert_array_equal(found.encode_layers(SENTENCES), load(tiny_folders["bert"]).encode_layers(SENTENCES))
    for revision in ("v2", COMMITS["v2"]):
        other = LayerEncoder("some-org/tiny-bert", device="cpu", revision=revision)
        assert type(other.model).__name__ == "ElectraModel"


@pytest.mark.parametrize("name", ["some-org/no-such-model", "no-such-model", "not a name!"])
def test_an_unknown_hub_name_is_refused(name, offline):
    with pytest.raises(ModelError, match=f"{name}: not a folder here, and the hub gave no model of that name"):
        load(name)


def test_an_unknown_revision_is_refused(offline, tiny_bert):
    hub_snapshot(offline, tiny_bert, "main")
    with pytest.raises(ModelError, match="some-org/tiny-bert: not a folder here, and the hub gave no model"):
        LayerEncoder("some-org/tiny-bert", device="cpu", revision="v9")


def test_only_what_is_needed_is_asked_of_the_hub(monkeypatch, tiny_bert):
    asked = []

    def snapshot_download(name, **options) -> str:
        asked.append((name, options))
        return str(tiny_bert)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    find_model("some-org/tiny-bert", revision="v1")
    find_model("some-org/tiny-bert", trust_remote_code=True)
    (name, plain), (_, trusted) = asked
    assert (name, plain["revision"]) == ("some-org/tiny-bert", "v1")
    assert "*.py" not in plain["allow_patterns"]
    assert "*.py" in trusted["allow_patterns"]
    assert {"*.bin", "*.pkl", "*.pt"} <= set(plain["ignore_patterns"]), "no pickle is even downloaded"


EVIL = """
from pathlib import Path
from transformers import BertConfig, BertModel
Path({marker!r}).write_text("code ran")
class EvilConfig(BertConfig):
    model_type = "evil"
class EvilModel(BertModel):
    config_class = EvilConfig
"""


@pytest.fixture
def marker(folder, tmp_path, monkeypatch) -> Path:
    """The folder brings code of its own, which would write this file."""
    monkeypatch.setattr(hf.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    (folder / "evil.py").write_text(EVIL.format(marker=str(tmp_path / "marker")))
    return tmp_path / "marker"


def test_remote_code_runs_only_if_asked_for(folder, marker):
    auto_map = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}
    edit_json(folder / "config.json", auto_map=auto_map, model_type="evil", architectures=["EvilModel"])
    with pytest.raises(ModelError, match="brings code"):
        load(folder)
    assert not marker.exists()
    trusted = LayerEncoder(folder, device="cpu", trust_remote_code=True)
    assert marker.exists(), "the trap works"
    assert type(trusted.model).__name__ == "EvilModel"


def test_a_model_that_needs_remote_code_is_refused_with_the_remedy(folder, marker):
    edit_json(folder / "config.json", auto_map={"AutoConfig": "evil.EvilConfig"}, model_type="evil")
    with pytest.raises(ModelError, match=r"brings code.*trust_remote_code=True"):
        load(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_remote_code_beside_a_known_type_does_not_run_either(file, folder, marker):
    names = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel", "AutoTokenizer": ["evil.Evil", None]}
    edit_json(folder / file, auto_map=names)
    assert type(load(folder).model).__name__ == "BertModel"
    assert not marker.exists()


def test_the_embedded_default_is_whole_and_has_several_names(offline):
    folder = embedded_folder()
    check_sha256(folder / "model.safetensors", folders.WEIGHTS_SHA256)
    for name in ("default", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        assert find_model(name).root == folder
        assert find_model(name).name == "all-MiniLM-L6-v2"
    with pytest.raises(ModelError, match="the hub gave no model"):  # a revision is the hub's to know
        find_model("sentence-transformers/all-MiniLM-L6-v2", revision="main")


def test_the_embedded_default_encodes():
    encoder = LayerEncoder(device="cpu")
    views = encoder.encode_layers(["A cat sat.", "It rained.", "A cat was sitting."])
    assert views.shape == (3, 7, 384)
    cat, rain, sitting = views[:, -1] / np.linalg.norm(views[:, -1], axis=1, keepdims=True)
    assert cat @ sitting > 0.7 > 0.3 > cat @ rain
    assert encoder.max_length == 256


def test_a_changed_file_is_refused_by_its_hash(tmp_path, monkeypatch):
    path = tmp_path / "weights"
    path.write_bytes(b"good")
    right = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"
    check_sha256(path, right)
    path.write_bytes(b"goob")
    with pytest.raises(ModelError, match=f"{path}: sha256 is [0-9a-f]{{64}}, expected {right}; reinstall its package"):
        check_sha256(path, right)
    path.unlink()
    with pytest.raises(ModelError, match=f"{path}: the file is missing; reinstall its package"):
        check_sha256(path, right)
    monkeypatch.setattr(folders, "WEIGHTS_SHA256", "0" * 64)
    with pytest.raises(ModelError, match=r"model\.safetensors: sha256 is 53aa51172d.*, expected 0000"):
        embedded_folder.__wrapped__()


@pytest.fixture
def no_package(monkeypatch):
    """Without the package of the embedded model."""
    monkeypatch.setattr(folders.util, "find_spec", lambda _: None)
    embedded_folder.cache_clear()
    yield
    embedded_folder.cache_clear()


@pytest.mark.parametrize("name", ["default", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_without_its_package_the_default_is_the_same_model_of_the_hub(name, no_package, monkeypatch, tiny_bert):
    asked = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: asked.append(name) or str(tiny_bert))
    assert find_model(name).name == asked[0] == "sentence-transformers/all-MiniLM-L6-v2"


def test_without_package_and_network_the_default_says_how_to_install_it(no_package, offline):
    message = r"sentence-transformers/all-MiniLM-L6-v2: .*network, .*, or pip install 'layerwise\[default-model\]'"
    with pytest.raises(ModelError, match=message):
        find_model("default")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dtype": "float8"}, InputError, "Unknown dtype 'float8'.*Known: float32, bfloat16, float16"),
        ({"device": "gpu"}, ModelError, "device 'gpu' cannot be used here: .*; try --device cpu"),
        ({"device": "cpu:x"}, ModelError, "device 'cpu:x' cannot be used here: .*; try --device cpu"),
        ({"backend": "tensorflow"}, InputError, "Unknown backend 'tensorflow'. Known: onnx, torch"),
    ],
)
def test_unknown_choices_are_refused(options, error, message, tiny_bert):
    with pytest.raises(error, match=message):
        LayerEncoder(tiny_bert, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused(tiny_bert):
    with pytest.raises(ModelError, match=r"device 'cuda:1' cannot be used here: .*; try --device cpu"):
        LayerEncoder(tiny_bert, device="cuda:1")


def test_an_old_sentence_transformers_folder_keeps_its_encoder_in_a_subfolder(tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path / "0_Transformer")
    (tmp_path / "0_Transformer" / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    modules = [
        {"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    encoder = load(tmp_path)
    assert encoder.max_length == 16
    assert encoder.folder.encoder != encoder.folder.root
    short = [sentence for sentence in SENTENCES if len(sentence) < 60]
    assert np.array_equal(encoder.encode_layers(short), load(tiny_bert).encode_layers(short))
    (tmp_path / "0_Transformer" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"0_Transformer: no model\.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize(("said", "most"), [(20, 20), (None, 60), (1000, 60)])
def test_the_smallest_stated_length_holds(said, most, folder):
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": said}))
    assert load(folder).max_length == most
