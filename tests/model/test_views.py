"""Models of views: encoding by a pass a prompt, saving and loading, here and in sentence-transformers."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from layerwise.encoder import LayerEncoder
from layerwise.errors import ModelError
from layerwise.mixes import fit_centres, parse_mix
from layerwise.model import LayerModel
from support.slow_cases import one_in, some_slow
from support.tiny import SENTENCES, save_decoder

MIXES = [
    "2 @ mean-but-first",
    "2 @ mean in twice",
    "views(1,2 @ mean; 3 @ max; unit)",
    "views(1 @ mean; 3 @ last in eol; 2,3 @ mean in twice; unit)",
    "views(1 @ mean; 3 @ last in eol; unit; less 2)",
    "views(1-2 @ mean; less mean)",
    "views(3*1,-2*2 @ mean; -1*3 @ last in eol; unit)",
    'views(1 @ mean in "a; old {text}" over text; 3 @ last in "Who {text}{answer}the")',
    "views(1 @ mean; 3 @ last in eol; 1,2 @ mean less 2; 3 @ last in eol less mean; unit)",
]


@pytest.fixture(scope="module")
def encoders(tiny_bert, tmp_path_factory):
    llama = save_decoder("llama", tmp_path_factory.mktemp("decoder") / "llama")
    return {"bert": LayerEncoder(tiny_bert, device="cpu"), "llama": LayerEncoder(llama, device="cpu")}


def model_of(encoder, text):
    mix = parse_mix(text)
    if mix.components is not None:
        views = encoder.encode_layers(SENTENCES, list(mix.poolings))
        stacked = np.stack([views[view.pooling][:, view.layer] for view in mix.views], axis=1)
        fitted = fit_centres(torch.from_numpy(stacked), mix.components)
        mix = mix.with_fitted(fitted.partly([view.remove for view in mix.views]))
    return LayerModel(encoder, mix)


CASES = [(name, mix) for mix in MIXES for name in ("bert", "llama") if not ("{answer}" in mix and name == "bert")]
CASES += [("bert", "2 @ mask in means"), ("bert", "views(1 @ mask in means; 4 @ mean; unit)")]


TAKEN_IN_TURN = [case for number, case in enumerate(CASES[:12]) if number % 4 in (1, 2)]  # bert's mix, llama's, bert's


@pytest.mark.parametrize(("name", "mix"), one_in(3, some_slow(CASES, slow=TAKEN_IN_TURN)))
def test_saved_models_of_views_give_the_same(encoders, name, mix, tmp_path):
    model = model_of(encoders[name], mix)
    embeddings = model.encode(SENTENCES)
    views = encoders[name].encode_layers(SENTENCES, model.mix.poolings)
    assert np.allclose(embeddings, model.embed_views(views), atol=1e-5)
    assert np.allclose(model.encode(SENTENCES[::-1])[::-1], embeddings, atol=1e-5)
    model.save(tmp_path / "saved")
    again = LayerModel.load(tmp_path / "saved", device="cpu")
    assert str(again.mix) == str(model.mix)
    assert np.allclose(again.encode(SENTENCES), embeddings, atol=1e-5)
    host = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    assert np.allclose(host.encode(SENTENCES), embeddings, atol=1e-5)
    again.save(tmp_path / "twice")
    assert np.allclose(LayerModel.load(tmp_path / "twice", device="cpu").encode(SENTENCES), embeddings, atol=1e-5)


def test_a_pass_runs_no_higher_than_its_views_need(encoders, monkeypatch):
    encoder, asked = encoders["llama"], []
    read = encoder.read
    monkeypatch.setattr(
        encoder,
        "read",
        lambda tokens, mask, layers, *more: asked.append(max(layers)) or read(tokens, mask, layers, *more),
    )
    LayerModel(encoder, "views(1 @ mean; 3 @ last in eol; 2 @ mean in eol)").encode(SENTENCES[:2])
    assert sorted(set(asked)) == [1, 3]
    assert not LayerModel(encoder, "1,2 @ last").mix.is_prompted


def test_the_digest_tells_what_is_taken_away(encoders):
    model = model_of(encoders["bert"], MIXES[5])
    other = model.replaced(mix=model.mix.with_fitted(fit_centres(torch.randn(9, 2, 32), 0)))
    assert model.digest() != other.digest()
    assert model.digest() == model_of(encoders["bert"], MIXES[5]).digest()


def test_a_damaged_folder_is_refused(encoders, tmp_path):
    model_of(encoders["bert"], MIXES[4]).save(tmp_path / "saved")
    (weights,) = (tmp_path / "saved").glob("*_MixPooling/model.safetensors")
    weights.unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors: missing"):
        LayerModel.load(tmp_path / "saved", device="cpu")


def test_the_models_own_prompt_comes_before_the_text(encoders):
    model = LayerModel(encoders["bert"], "2 @ mean in twice", prompts={"query": "old "})
    assert np.allclose(model.encode_query(["river"]), model.encode(["old river"]), atol=1e-6)
