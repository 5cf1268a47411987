"""A LayerModel where a SentenceTransformer, an estimator or a picklable object is expected."""

import asyncio
import copy
import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from sentence_transformers import util
from sentence_transformers.sentence_transformer import evaluation

from layerwise import Head, LayerEncoder, LayerModel
from layerwise.errors import InputError, ModelError
from support.text_pairs import some_pairs
from support.tiny import SENTENCES

PAIRS = some_pairs(24)
LEFT, RIGHT, GOLD = list(PAIRS.left), list(PAIRS.right), [float(score) for score in PAIRS.gold]
LABELS = [int(score > 2) for score in GOLD]
DOCUMENTS = {str(number): text for number, text in enumerate(dict.fromkeys(RIGHT))}
QUERIES = {f"q{number}": text for number, text in enumerate(LEFT[:6])}
RELEVANT = {f"q{number}": {str(number)} for number in range(6)}
SAMPLES = [
    {"query": LEFT[row], "positive": RIGHT[row : row + 2], "negative": RIGHT[row + 2 : row + 6]} for row in range(8)
]
EVALUATORS = {
    "similarity": lambda: evaluation.EmbeddingSimilarityEvaluator(LEFT, RIGHT, GOLD),
    "similarity-int8": lambda: evaluation.EmbeddingSimilarityEvaluator(LEFT, RIGHT, GOLD, precision="int8"),
    "similarity-truncated": lambda: evaluation.EmbeddingSimilarityEvaluator(LEFT, RIGHT, GOLD, truncate_dim=16),
    "retrieval": lambda: evaluation.InformationRetrievalEvaluator(QUERIES, DOCUMENTS, RELEVANT),
    "binary": lambda: evaluation.BinaryClassificationEvaluator(LEFT, RIGHT, LABELS),
    "triplets": lambda: evaluation.TripletEvaluator(LEFT, RIGHT, RIGHT[::-1]),
    "paraphrases": lambda: evaluation.ParaphraseMiningEvaluator(DOCUMENTS, [("0", "1"), ("2", "3")]),
    "reranking": lambda: evaluation.RerankingEvaluator(SAMPLES),
    "translation": lambda: evaluation.TranslationEvaluator(LEFT, RIGHT),
    "mse": lambda: evaluation.MSEEvaluator(LEFT, RIGHT, teacher_model=TEACHER),
}


class TEACHER:
    """Every text's vector is its length."""

    @staticmethod
    def encode(texts, **options):
        return np.tile(np.array([[len(text)] for text in texts], dtype=np.float32), (1, 32))


@pytest.fixture(scope="module")
def model(tiny_bert):
    prompts = {"query": "rain ", "document": "door "}
    return LayerModel(LayerEncoder(tiny_bert, device="cpu"), "1,3 @ mean", prompts=prompts, similarity="dot")


@pytest.fixture(scope="module")
def host(model):
    return model.to_sentence_transformer()


@pytest.mark.parametrize("name", EVALUATORS)
def test_evaluators_of_the_host_give_what_they_give_for_its_models(name, model, host):
    ours, theirs = EVALUATORS[name]()(model), EVALUATORS[name]()(host)
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert list(model.model_card_data.eval_results_dict.values())[-1] == pytest.approx(ours)


def test_utilities_of_the_host_give_what_they_give_for_its_models(model, host, tmp_path):
    from datasets import Dataset

    found = [
        util.semantic_search(one.encode_query(LEFT, convert_to_tensor=True), one.encode(RIGHT, convert_to_tensor=True))
        for one in (model, host)
    ]
    assert [[hit["corpus_id"] for hit in hits] for hits in found[0]] == [
        [hit["corpus_id"] for hit in hits] for hits in found[1]
    ]
    pairs = Dataset.from_dict({"query": LEFT, "answer": RIGHT})
    mined = [util.mine_hard_negatives(pairs, one, num_negatives=2, verbose=False)[:] for one in (model, host)]
    assert mined[0] == mined[1]


def test_mined_embeddings_on_disk_are_another_models_for_another_mix(model, tmp_path):
    assert model.model_card_data.base_model != model.with_mix("last").model_card_data.base_model


def test_the_names_that_hosts_ask_for(model, tiny_bert):
    assert model.device == torch.device("cpu")
    assert model.tokenizer is model.encoder.tokenizer
    assert model.max_seq_length == model.encoder.max_length
    assert model.get_sentence_embedding_dimension() == model.get_embedding_dimension() == 32
    assert (model.encode(SENTENCES, precision=None, pool=None, device=None) == model.encode(SENTENCES)).all()
    with pytest.raises(InputError, match=r"encode takes output_value='sentence_embedding' only, not 'token_embed"):
        model.encode(SENTENCES, output_value="token_embeddings")
    with pytest.raises(TypeError, match="unexpected keyword argument 'precison'"):
        model.encode(SENTENCES, precison="int8")


def test_types_of_embeddings(model):
    assert isinstance(model.encode(SENTENCES), np.ndarray)
    assert isinstance(model.encode(SENTENCES, convert_to_tensor=True), torch.Tensor)
    assert isinstance(model.encode(SENTENCES, convert_to_numpy=False), list)
    assert model.encode("one", convert_to_numpy=False).shape == model.encode("one").shape == (32,)
    for options in ({}, {"convert_to_tensor": True}, {"precision": "binary"}):
        assert len(model.encode([], **options)) == 0


def copies(thing):
    yield pickle.loads(pickle.dumps(thing))
    yield copy.deepcopy(thing)
    yield copy.copy(thing)


def test_pickled_and_copied_models_embed_alike(model):
    head = Head(torch.eye(64)[:8], activation="identity")
    for one in (model, LayerModel(model.encoder, "last @ cls | 2 @ max", heads=[head]), model.with_mix("wk(start=1)")):
        expected = one.encode(SENTENCES)
        for copied in copies(one):
            assert (copied.encode(SENTENCES) == expected).all()
            assert copied.parts.as_dict().keys() == one.parts.as_dict().keys()
        assert (one.encode(SENTENCES) == expected).all()


def test_a_pickled_encoder_has_its_own_weights_and_every_layer(tiny_folders):
    for folder in (tiny_folders["bert"], tiny_folders["albert"], tiny_folders["modernbert"]):
        encoder = LayerEncoder(folder, device="cpu")
        expected = encoder.encode_layers(SENTENCES)  # after which transformers' hooks are on the model
        for copied in copies(encoder):
            assert (copied.encode_layers(SENTENCES) == expected).all()
            assert copied.fingerprint() == encoder.fingerprint()
        loaded = pickle.loads(pickle.dumps(encoder))
        with torch.no_grad():
            next(loaded.model.parameters()).zero_()
        assert (encoder.encode_layers(SENTENCES) == expected).all()


def test_an_onnx_encoder_is_pickled_without_its_sessions(tiny_bert):
    pytest.importorskip("onnxruntime")
    encoder = LayerEncoder(tiny_bert, device="cpu", backend="onnx")
    expected = encoder.encode_layers(SENTENCES)
    loaded = pickle.loads(pickle.dumps(encoder))
    assert loaded.backend == "onnx"
    assert np.allclose(loaded.encode_layers(SENTENCES), expected, atol=1e-6)


def test_threads_of_any_kind_give_equal_embeddings(tiny_bert):
    model = LayerModel.load(tiny_bert, device="cpu")  # whose layers are first read by several threads at once
    expected = LayerModel.load(tiny_bert, device="cpu").encode(SENTENCES)

    async def in_executor():
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(None, model.encode, SENTENCES) for _ in range(4)))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(model.encode, [SENTENCES] * 12))
        results += pool.submit(lambda: asyncio.run(in_executor())).result()  # this thread's loop may be a browser's
    results += joblib.Parallel(2, prefer="threads")(joblib.delayed(model.encode)(SENTENCES) for _ in range(4))
    for result in results:
        assert np.allclose(result, expected, atol=1e-6)


FORKED = """
import multiprocessing, sys
import torch
import numpy as np
from layerwise import LayerModel

torch.set_num_threads(2)
model = LayerModel.load(sys.argv[1], device="cpu")
texts = ["The river rose.", "Rain.", "Who left the door open?"] * 8
fork = multiprocessing.get_context("fork")

def embed(number):
    return model.encode(texts)

def check(results, expected):
    assert all(np.allclose(result, expected, atol=1e-6) for result in results)

with fork.Pool(2) as pool:  # after the import, before a first encode
    before = pool.map(embed, range(2))
expected = model.encode(texts)
check(before, expected)
with fork.Pool(2) as pool:  # after a first encode
    check(pool.map(embed, range(2)), expected)
print("done")
"""
IN_JOBLIBS_PROCESSES = """
import sys
import joblib
import numpy as np
from layerwise import LayerModel

model = LayerModel.load(sys.argv[1], device="cpu")
texts = ["The river rose.", "Rain."]
for result in joblib.Parallel(2)(joblib.delayed(model.encode)(texts) for _ in range(2)):
    assert np.allclose(result, model.encode(texts), atol=1e-6)
print("done")
"""
UNPICKLED = """
import pickle, sys
from pathlib import Path
import numpy as np

encode, texts = pickle.loads(Path(sys.argv[1]).read_bytes())
np.save(sys.argv[2], encode(texts))
"""


def test_forks_give_equal_embeddings(tiny_bert, forks):
    """In a process of its own, where a deadlock ends with its time."""
    done = forks.run(FORKED, tiny_bert)
    assert done.stdout == "done\n", done.stderr


def test_a_fresh_process_unpickles_a_models_method_and_gives_equal_embeddings(model, tmp_path, forks):
    (tmp_path / "sent").write_bytes(pickle.dumps((model.encode, SENTENCES)))
    done = forks.run(UNPICKLED, tmp_path / "sent", tmp_path / "embeddings.npy")
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.load(tmp_path / "embeddings.npy"), model.encode(SENTENCES), atol=1e-6)


@pytest.mark.slow
def test_joblibs_processes_give_equal_embeddings(tiny_bert, forks):
    done = forks.run(IN_JOBLIBS_PROCESSES, tiny_bert)
    assert done.stdout == "done\n", done.stderr


def test_truncated_folders_embed_as_the_host_does(tiny_bert, tmp_path):
    from sentence_transformers import SentenceTransformer

    LayerModel.load(tiny_bert, device="cpu").replaced(normalize=True).to_sentence_transformer().save(
        str(tmp_path / "whole")
    )
    SentenceTransformer(str(tmp_path / "whole"), device="cpu", truncate_dim=12).save(str(tmp_path / "cut"))
    host, model = (
        SentenceTransformer(str(tmp_path / "cut"), device="cpu"),
        LayerModel.load(tmp_path / "cut", device="cpu"),
    )
    assert model.width == host.get_embedding_dimension() == 12
    for options in ({}, {"truncate_dim": 5}, {"normalize_embeddings": True}):
        assert np.allclose(model.encode(SENTENCES, **options), host.encode(SENTENCES, **options), atol=1e-5)
    views = model.encoder.encode_layers(SENTENCES)
    assert np.allclose(model.embed_views({"mean": views}), model.encode(SENTENCES), atol=1e-6)
    model.save(tmp_path / "again")
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    assert np.allclose(again.encode(SENTENCES), model.encode(SENTENCES), atol=1e-5)
    assert model.with_mix("last").width == 32
    assert model.digest() != model.replaced(truncate_dim=None).digest()
    with pytest.raises(InputError, match=r"truncate_dim 99 is not possible: embeddings have 32 dimensions"):
        LayerModel.load(tiny_bert, device="cpu").replaced(truncate_dim=99)


def test_a_folders_truncation_must_be_a_number(tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path / "odd")
    (tmp_path / "odd" / "config_sentence_transformers.json").write_text(json.dumps({"truncate_dim": "12"}))
    with pytest.raises(ModelError, match=r"truncate_dim is '12'; expected a number of dimensions"):
        LayerModel.load(tmp_path / "odd", device="cpu")
