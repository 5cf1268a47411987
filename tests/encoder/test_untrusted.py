"""Model folders from strangers: nothing runs, nothing outside is read, memory follows the weights; one line each."""

import json
import os
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from layerwise.encoder import LayerEncoder
from layerwise.encoder import load as loading
from layerwise.errors import LayerwiseError, ModelError, UnsafeModelError
from layerwise.evaluate import load_subject
from layerwise.model import LayerModel
from support.tiny import DEPTH, WIDTH


@pytest.fixture
def folder(tmp_path, tiny_bert):
    """A copy of a model, as a folder of sentence-transformers."""
    copy = shutil.copytree(tiny_bert, tmp_path / "model")
    add_modules(copy)
    return copy


def add_modules(folder, *more):
    entries = [("", "sentence_transformers.models.Transformer"), ("1_Pooling", "sentence_transformers.models.Pooling")]
    modules = [{"idx": n, "name": str(n), "path": p, "type": t} for n, (p, t) in enumerate([*entries, *more])]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    config = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder, match, kind=ModelError):
    with pytest.raises(kind, match=match) as error:
        LayerModel.load(folder, device="cpu").encode(["Rain."])
    assert len(str(error.value).splitlines()) == 1


class Bomb:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "training_args.bin", "1_Pooling/pytorch_model.bin"])
def test_a_pickle_beside_the_weights_is_not_loaded(name, folder, tmp_path):
    (folder / name).write_bytes(pickle.dumps(Bomb(tmp_path / "canary")))
    assert LayerModel.load(folder, device="cpu").width == WIDTH
    assert not (tmp_path / "canary").exists()


def test_a_pickle_under_the_name_of_safetensors_is_refused(folder, tmp_path):
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(tmp_path / "canary")))
    refused(folder, "weights cannot be read")
    assert not (tmp_path / "canary").exists()


def test_a_pickled_head_is_refused_by_the_fallback_to_sentence_transformers_too(folder, tmp_path):
    (folder / "2_Dense").mkdir()
    config = {"in_features": WIDTH, "out_features": 4, "bias": True, "activation_function": "torch.nn.Tanh"}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(config))
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "canary")))
    add_modules(folder, ("2_Dense", "sentence_transformers.models.Dense"))
    refused(folder, "incomplete or pickled")
    with pytest.raises(ModelError, match="sentence-transformers cannot load it"):
        load_subject(str(folder), device="cpu")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_an_attention_kernel_of_the_hub_is_not_fetched(key, folder):
    edit(folder / "config.json", **{key: "stranger/kernel"})
    refused(folder, "may be code of the hub", UnsafeModelError)
    with pytest.raises(UnsafeModelError, match="may be code of the hub"):
        load_subject(str(folder), device="cpu")  # no fallback either


def test_code_of_the_folder_is_neither_run_nor_asked_about(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\nclass Evil: pass\n")
    edit(folder / "config.json", model_type="evil", auto_map={"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"})
    refused(folder, "brings code, which is not run unless you trust it", UnsafeModelError)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "kind",
    ["evil.Evil", "os.system", "sentence_transformers.base.model.torch", "sentence_transformers.models.WordEmbeddings"],
)
def test_a_module_that_may_import_code_is_refused(kind, folder):
    (folder / "2_Evil").mkdir()
    add_modules(folder, ("2_Evil", kind))
    refused(folder, "is not known here")
    with pytest.raises(UnsafeModelError, match="may run code"):
        load_subject(str(folder), device="cpu")


@pytest.mark.parametrize("path", ["../secret/1_Pooling", "1_Pooling/../../secret/1_Pooling", "/"])
@pytest.mark.parametrize("module", [0, 1])
def test_a_module_outside_the_folder_is_refused(path, module, folder):
    shutil.copytree(folder, folder.parent / "secret")
    modules = json.loads((folder / "modules.json").read_text())
    modules[module]["path"] = path
    (folder / "modules.json").write_text(json.dumps(modules))
    refused(folder, "leads out of the model's folder", UnsafeModelError)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "1_Pooling", "1_Pooling/config.json"])
def test_a_link_out_of_the_folder_is_refused(name, folder):
    secret = shutil.move(folder / name, folder.parent / "secret")
    (folder / name).symlink_to(secret)
    refused(folder, "links to a file outside", UnsafeModelError)


def test_links_inside_the_folder_and_of_the_hub_cache_are_followed(folder, tmp_path):
    shutil.move(folder / "model.safetensors", folder / "weights")
    (folder / "model.safetensors").symlink_to("weights")
    assert LayerEncoder(folder, device="cpu").depth == DEPTH
    snapshot = tmp_path / "models--a--b" / "snapshots" / "c0ffee"
    shutil.copytree(folder, snapshot, symlinks=True)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    shutil.move(snapshot / "weights", blobs / "f00d")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("../../blobs/f00d")
    assert LayerEncoder(snapshot, device="cpu").depth == DEPTH


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pipe_or_a_loop_in_place_of_a_file_is_refused(name, folder):
    (folder / name).unlink()
    (folder / name).symlink_to(folder / name)
    refused(folder, "no config.json|no model.safetensors|no tokenizer")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, "no config.json|no model.safetensors|no tokenizer")


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "intermediate_size", "max_position_embeddings"])
@pytest.mark.parametrize("value", [10**6, 10**9])
def test_a_config_larger_than_the_weights_is_refused_before_memory_is_taken(key, value, folder):
    edit(folder / "config.json", **{key: value})
    refused(folder, "much larger than its weights", UnsafeModelError)


@pytest.mark.parametrize("depth", [10**6, 2**63, 0, -1])
def test_an_absurd_depth_is_refused(depth, folder):
    edit(folder / "config.json", num_hidden_layers=depth)
    refused(folder, "expected 1 to 1024", UnsafeModelError)


@pytest.mark.parametrize(
    "change",
    [{"num_attention_heads": 0}, {"num_attention_heads": -1}, {"quantization_config": 7}, {"pad_token_id": 10**9}],
)
def test_settings_that_transformers_stumbles_over_are_one_line(change, folder):
    edit(folder / "config.json", **change)
    refused(folder, "transformers cannot load|does not run as an encoder")


def test_a_config_by_which_all_states_are_nan_is_refused(folder):
    edit(folder / "config.json", layer_norm_eps=float("nan"))
    refused(folder, "NaN or infinite")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value, folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.layer.1.output.dense.bias"][3] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    refused(folder, "encoder.layer.1.output.dense.bias")


@pytest.mark.parametrize("name", ["config.json", "modules.json", "layerwise.json", "config_sentence_transformers.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "\0", "7"])
def test_json_that_is_none_is_one_line(name, text, folder):
    (folder / name).write_text(text)
    refused(folder, f"{name}: (not valid JSON|expected a)")


def test_json_of_a_gigabyte_is_not_read(folder):
    with (folder / "layerwise.json").open("wb") as file:
        file.truncate(10**9)
    refused(folder, "it is not read", UnsafeModelError)


def tokenizer(folder, **changes):
    edit(folder / "tokenizer.json", **changes)


@pytest.mark.parametrize(
    "rules",
    [[({"String": "r"}, "r" * 10)] * 12, [({"String": "r"}, "a" * 10**5)], [({"Regex": "r*"}, "a" * 2000)]],
)
def test_a_tokenizer_that_lets_texts_grow_is_refused(rules, folder):
    normalizers = [{"type": "Replace", "pattern": pattern, "content": content} for pattern, content in rules]
    tokenizer(folder, normalizer={"type": "Sequence", "normalizers": normalizers})
    refused(folder, "letters of one", UnsafeModelError)


def test_ordinary_replacements_are_not_refused():
    rules = [{"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "Lowercase"}]
    loading._check_growth("model", {"type": "Sequence", "normalizers": rules})


def test_token_ids_that_the_model_has_not_are_refused(folder):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokenizer(folder, model=model | {"vocab": model["vocab"] | {"rain": 10**6}})
    refused(folder, "tokens beyond the")


def test_a_tokenizer_without_its_unknown_token_is_one_line(folder):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokenizer(folder, model=model | {"vocab": {}})
    refused(folder, "tokenizer cannot be used|makes .* of two letters")


def test_more_special_tokens_than_places_are_refused(folder):
    before = json.loads((folder / "tokenizer.json").read_text())["post_processor"]
    special = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * 100
    tokenizer(folder, post_processor=before | {"single": [*special, {"Sequence": {"id": "A", "type_id": 0}}]})
    refused(folder, "adds 100 special tokens")


def test_a_chat_template_is_not_rendered(folder, tmp_path):
    template = f"{{{{ lipsum.__globals__['os'].system('touch {tmp_path / 'canary'}') }}}}"
    (folder / "chat_template.jinja").write_text(template)
    edit(folder / "tokenizer_config.json", chat_template=template)
    assert LayerModel.load(folder, device="cpu").encode(["Rain."]).shape == (1, WIDTH)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("layerwise.json", {"fitted_on": 7}),
        ("layerwise.json", {"fitted_on": ["x"]}),
        ("layerwise.json", {"training": "x" * 10**6}),
        ("config_sentence_transformers.json", {"prompts": [1]}),
        ("config_sentence_transformers.json", {"default_prompt_name": ["x"]}),
        ("1_Pooling/config.json", {"pooling_mode": {"a": 1}}),
    ],
)
def test_our_parts_with_absurd_values_are_one_short_line(name, facts, folder):
    (folder / name).write_text(json.dumps(facts))
    with pytest.raises(LayerwiseError, match=r"layerwise\.json|pooling|prompt") as error:
        LayerModel.load(folder, device="cpu")
    assert len(str(error.value)) < 1100
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("FlowTransform", {"width": 10**9, "blocks": 1, "hidden": 8, "coupling": "affine"}),
        ("FlowTransform", {"width": WIDTH, "blocks": 10**9, "hidden": 8, "coupling": "affine"}),
    ],
)
def test_a_network_larger_than_its_weights_is_refused_before_memory_is_taken(kind, config, folder):
    (folder / "m").mkdir()
    (folder / "m" / "config.json").write_text(json.dumps(config))
    save_file({"x": torch.ones(2)}, folder / "m" / "model.safetensors")
    add_modules(folder, ("m", f"layerwise.model.modules.{kind}"))
    refused(folder, "its weights have at most 2")


def test_a_mix_of_other_weights_is_refused(folder):
    (folder / "m").mkdir()
    config = {"mix": "attention(cls, mean)", "word_embedding_dimension": 10**9, "depth": DEPTH}
    save_file({"x": torch.ones(2)}, folder / "m" / "model.safetensors")
    add_modules(folder, ("m", "layerwise.model.modules.MixPooling"))
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([modules[0], modules[2]]))
    for mix, message in (
        ("attention(cls, mean)", "of key, query and value, not x"),
        ("views(1 @ cls; less 9)", "not x"),
    ):
        (folder / "m" / "config.json").write_text(json.dumps(config | {"mix": mix}))
        refused(folder, message)


@pytest.mark.parametrize("shape", [(0, WIDTH), (4,), (4, WIDTH + 1)])
def test_a_head_of_another_shape_is_refused(shape, folder):
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text("{}")
    save_file({"linear.weight": torch.ones(shape)}, folder / "2_Dense" / "model.safetensors")
    add_modules(folder, ("2_Dense", "sentence_transformers.models.Dense"))
    refused(folder, "head")
