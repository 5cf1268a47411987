"""The real encoder on real sentences: layers, poolings and a saved model against independent figures."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from layerwise import LayerEncoder, LayerModel, ViewCache
from layerwise.metrics import cosine, spearman

pytestmark = pytest.mark.shared

# Mean pooling by layer on STS-B test, as the models' README gives them (measured by other code).
BY_LAYER = [48.7, 50.8, 50.7, 47.4, 47.3, 45.1, 42.5, 40.8, 39.9, 39.9, 41.5, 44.2, 45.0]


@pytest.fixture(scope="module")
def encoder(shared) -> LayerEncoder:
    return LayerEncoder(shared / "models" / "wiki-mlm-12x384", device="cpu")


@pytest.fixture(scope="module")
def stsb(shared) -> dict[str, list]:
    return pq.read_table(shared / "data" / "sts" / "stsb.parquet", filters=[("split", "=", "test")]).to_pydict()


def test_layers_of_the_real_encoder_equal_its_hidden_states(encoder, stsb):
    """Alone, where both run the same products; in a batch, to float32's rounding of products of another shape."""
    sentences = [*stsb["sentence1"][:12], "word " * 400]
    batched = encoder.encode_layers(sentences, ("mean", "cls", "max"))
    for row, sentence in enumerate(sentences):
        alone = encoder.encode_layers([sentence], ("mean", "cls", "max"))
        inputs = encoder.tokenizer(sentence, return_tensors="pt", truncation=True, max_length=256)
        with torch.inference_mode():
            states = torch.stack(encoder.model(**inputs, output_hidden_states=True).hidden_states)[:, 0]
        largest = states.abs().amax(dim=(1, 2)).clamp(min=1)[:, None].numpy()  # about 10: rounding is relative to it
        expected = {"mean": states.mean(1), "cls": states[:, 0], "max": states.amax(1)}
        for pooling, vectors in expected.items():
            assert np.abs(alone[pooling][0] - vectors.numpy()).max() < 1e-5, (row, pooling)
            assert (np.abs(batched[pooling][row] - vectors.numpy()) / largest).max() < 3e-6, (row, pooling)


@pytest.mark.slow  # the same figures through `evaluate` are in test_evaluate_shared
def test_every_layer_scores_what_other_code_measured(encoder, stsb, tmp_path):
    views = encoder.encode_layers(stsb["sentence1"] + stsb["sentence2"], cache=ViewCache(tmp_path))
    pairs, gold = len(stsb["score"]), np.array(stsb["score"])
    assert pairs == 1379
    scores = [100 * spearman(cosine(views[:pairs, layer], views[pairs:, layer]), gold) for layer in range(13)]
    assert np.abs(np.array(scores) - BY_LAYER).max() < 0.06
    again = encoder.encode_layers(stsb["sentence1"] + stsb["sentence2"], cache=ViewCache(tmp_path))
    assert isinstance(again, np.memmap)


@pytest.mark.slow
def test_the_real_encoder_cut_and_loaded_without_this_package(encoder, stsb, tmp_path, forks):
    sentences = stsb["sentence2"][:30]
    model = LayerModel(encoder, "0,1,4 @ mean")
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 0.8 * 4 * sum(
        parameter.numel() for parameter in encoder.model.parameters()
    )
    code = (
        "import sys; sys.modules['layerwise'] = None\n"
        "import numpy as np\n"
        "from sentence_transformers import SentenceTransformer\n"
        "texts = open('texts.txt').read().splitlines()\n"
        "model = SentenceTransformer('model', device='cpu')\n"
        "assert len(model[0].auto_model.encoder.layer) == 4\n"
        "np.save('out.npy', model.encode(texts))\n"
    )
    (tmp_path / "texts.txt").write_text("\n".join(sentences))
    done = forks.run(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert np.abs(np.load(tmp_path / "out.npy") - model.encode(sentences)).max() < 1e-5
