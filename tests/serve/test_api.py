"""Every address: what it answers, and what it refuses with which remedy."""

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from layerwise.data import RowSource
from layerwise.embed import EmbedJob, ModelChoice, VectorFiles, run_embed
from layerwise.errors import InputError
from layerwise.index import ExactIndex, build_index
from layerwise.serve import ServeSettings, create_app, load_served
from layerwise.serve.load import served_index
from layerwise.serve.served_model import ServedModel
from support.serving import refused, running, vectors_of
from support.tiny import SENTENCES, save_tiny

NEAR = {"rtol": 0, "atol": 1e-5}


def test_one_text_tokens_and_lists_of_tokens(server, tiny_layers):
    ids = tiny_layers.tokenizer(SENTENCES[:2])["input_ids"]
    expected = tiny_layers.encode(SENTENCES[:2])
    np.testing.assert_allclose(server.embed(input=SENTENCES[0]), expected[:1], **NEAR)
    np.testing.assert_allclose(server.embed(input=ids[0]), expected[:1], **NEAR)
    np.testing.assert_allclose(server.embed(input=ids), expected, **NEAR)


def test_base64_dimensions_and_length_1(server, tiny_layers):
    expected = tiny_layers.encode(SENTENCES, truncate_dim=8, normalize_embeddings=True)
    for encoding in ("float", "base64"):
        vectors = server.embed(input=SENTENCES, dimensions=8, normalize=True, encoding_format=encoding, user="me")
        np.testing.assert_allclose(vectors, expected, **NEAR)
    as_floats, as_base64 = (server.embed(input=SENTENCES[0], encoding_format=kind) for kind in ("float", "base64"))
    np.testing.assert_array_equal(as_floats, as_base64)  # the JSON of a float32 is read back as it was


def test_fewer_dimensions_have_length_1_where_all_of_them_had(tiny_layers):
    with running({"tiny": tiny_layers.replaced(normalize=True)}) as server:
        expected = tiny_layers.encode(SENTENCES, truncate_dim=8, normalize_embeddings=True)
        np.testing.assert_allclose(server.embed(input=SENTENCES, dimensions=8), expected, **NEAR)
        as_they_are = tiny_layers.encode(SENTENCES, normalize_embeddings=True)[:, :8]
        vectors = server.embed(input=SENTENCES, dimensions=8, normalize=False)
        np.testing.assert_allclose(vectors, as_they_are, **NEAR)
        plain = server.embed(input=SENTENCES, dimensions=8, layers="last @ mean")  # whose length is not 1
        np.testing.assert_allclose(plain, tiny_layers.encode(SENTENCES, truncate_dim=8), **NEAR)


def test_all_gives_every_layer(server, tiny_layers):
    answer = server.post("/v1/embeddings", input=SENTENCES[:2], layers="all", pooling="cls").json()
    assert [(item["index"], item["layer"]) for item in answer["data"]] == [(i, n) for i in range(2) for n in range(5)]
    expected = tiny_layers.encoder.encode_layers(SENTENCES[:2], "cls").reshape(10, -1)
    np.testing.assert_allclose(vectors_of(answer), expected, **NEAR)


def test_pooling_replaces_that_of_the_model(server, tiny_layers):
    expected = tiny_layers.with_mix("last @ max").encode(SENTENCES)
    np.testing.assert_allclose(server.embed(input=SENTENCES, pooling="max"), expected, **NEAR)


def test_prompts_heads_and_normalising_of_the_model(tiny_layers):
    model = tiny_layers.replaced(prompts={"query": "door : "}, default_prompt_name="query", normalize=True)
    with running({"prompted": model}) as server:
        np.testing.assert_allclose(server.embed(input=SENTENCES), model.encode(SENTENCES), **NEAR)
        assert server.client.get("/v1/models").json()["data"][0]["prompts"] == ["query"]  # "document" has no text
        plain = model.encode(SENTENCES, prompt_name="document")
        np.testing.assert_allclose(server.embed(input=SENTENCES, prompt_name="document"), plain, **NEAR)
        ids = [[2, 7, 3]]
        refused(server.post("/v1/embeddings", input=ids), 422, "cannot be put into a prompt", param="input")


LONG = "river " * 100
WRONG = [
    ({}, 422, "input is missing", "input"),
    ({"input": []}, 422, "input is an empty list; send at least one", "input"),
    ({"inputs": "a"}, 422, "input is missing; unknown field 'inputs'. Did you mean 'input'? Known: ", "input"),
    ({"input": [1, "a"]}, 422, "input must be a text", "input"),
    ({"input": [True]}, 422, "input must be", "input"),
    ({"input": 3}, 422, "input must be", "input"),
    ({"input": " "}, 422, "input 0 is empty; leave it out", "input"),
    ({"input": ["a", ""]}, 422, "input 1 is empty", "input"),
    ({"input": "a", "modle": "x"}, 422, "unknown field 'modle'. Did you mean 'model'?", "modle"),
    ({"input": "a", "model": "tny"}, 404, "there is no model 'tny'. Did you mean 'tiny'? Known: tiny", "model"),
    ({"input": "a", "layers": "lsat"}, 422, "'lsat' is not a layer; a mix is layers such as", "layers"),
    ({"input": "a", "layers": "9"}, 422, "There is no layer 9: this encoder has layers 0 to 4", "layers"),
    ({"input": "a", "layers": "views(1-99999999999 @ mean)"}, 422, "no encoder has so many layers", "layers"),
    ({"input": "a", "layers": "attention(cls, mean)"}, 422, "attention", "layers"),
    ({"input": "a", "pooling": "men"}, 422, "Unknown token pooling 'men'", "pooling"),
    ({"input": "a", "prompt_name": "x"}, 422, "Unknown prompt 'x'", "prompt_name"),
    ({"input": "a", "encoding_format": "int8"}, 422, "encoding_format", "encoding_format"),
    ({"input": "a", "dimensions": 0}, 422, "dimensions", "dimensions"),
    ({"input": "a", "dimensions": 33}, 422, "dimensions 33 is not possible: embeddings have 32 numbers", "dimensions"),
    ({"input": "a", "dimensions": "8"}, 422, "dimensions", "dimensions"),
    ({"input": [[1, 10**6]]}, 422, "token numbers beyond 0 to", "input"),
    ({"input": [[2] * 61]}, 422, "input 0 has 61 tokens and tiny takes at most 60", "input"),
    ({"input": ["a", LONG]}, 422, "1 has 102 tokens and tiny takes at most 60; shorten or split it, or send", None),
    ({"input": LONG, "layers": '1 @ last in "Topic {text}"'}, 422, "at most 60 with its prompt", "input"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "message", "param"), WRONG)
def test_a_wrong_request_is_refused_with_the_remedy(server, body, status, message, param):
    refused(server.post("/v1/embeddings", **body), status, message, param=param)


def test_truncate_cuts_as_encode_does(server, tiny_layers):
    np.testing.assert_allclose(server.embed(input=LONG, truncate=True), tiny_layers.encode([LONG]), **NEAR)
    assert server.embed(input=[[2] * 90], truncate=True).shape == (1, 32)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b'{"input": "\\ud800"}', b"[" * 5000, b'{"input": 1e999}', b"[]", b"null"]
)
def test_what_is_no_json_object(server, content):
    answer = server.client.post("/v1/embeddings", content=content)
    refused(answer, 422 if content in (b"[]", b"null", b'{"input": 1e999}') else 400)


def test_other_addresses_methods_and_types(server):
    refused(server.client.get("/v1/nothing"), 404, "see /docs")
    answer = server.client.get("/v1/embeddings")
    refused(answer, 405)
    assert answer.headers["allow"] == "POST"
    form = server.client.post("/v1/embeddings", data={"input": "a"})
    refused(form, 415, "send JSON with Content-Type: application/json")
    for path in (
        "/../etc/passwd",
        "/page/../settings.py",
        "/%2e%2e/app.py",
        "//v1/models",
        "/page.css/",
        "/v1/models/..",
    ):
        assert server.client.get(path, follow_redirects=False).status_code in (307, 404)


def test_limits_of_a_request(tiny_layers):
    limits = {"max_inputs": 3, "max_tokens": 60, "max_body_bytes": 2000, "max_numbers": 400}
    with running({"tiny": tiny_layers}, **limits) as server:
        assert server.embed(input=["a"] * 3).shape == (3, 32)
        refused(server.post("/v1/embeddings", input=["a"] * 4), 413, "4 texts; this server takes at most 3 a request")
        refused(server.post("/v1/embeddings", input=["a " * 30] * 3), 413, "96 tokens; this server takes at most 60")
        refused(server.post("/v1/embeddings", input="a" * 3000), 413, "the body has more than 2000 bytes")
        refused(server.post("/v1/embeddings", input=["a"] * 3, layers="all"), 413, "480 numbers", param="layers")


def test_settings_that_contradict_the_model_are_refused(tiny_layers):
    with pytest.raises(InputError, match="max_tokens 50 is less than the 60 tokens that a text of tiny may have"):
        create_app({"tiny": tiny_layers}, ServeSettings(max_tokens=50))
    with pytest.raises(InputError, match="max_tokens 100 is more than max_queue_tokens 99"):
        ServeSettings(max_tokens=100, max_queue_tokens=99)


def test_similarity_of_pairs_and_by_layer(server, tiny_layers):
    pairs = [SENTENCES[0:2], SENTENCES[1:3], SENTENCES[0:2]]
    answer = server.post("/v1/similarity", pairs=pairs, layers="1,3").json()
    left, right = (tiny_layers.with_mix("1,3").encode([pair[side] for pair in pairs]) for side in (0, 1))
    expected = tiny_layers.similarity_pairwise(left, right).numpy()
    np.testing.assert_allclose([item["similarity"] for item in answer["data"]], expected, **NEAR)
    assert answer["similarity"] == "cosine"
    assert answer["usage"]["total_tokens"] == sum(tiny_layers.encoder.token_counts(SENTENCES[:3]))  # each text once
    by_layer = server.post("/v1/similarity", pairs=pairs, layers="all").json()["data"]
    left, right = (tiny_layers.encoder.encode_layers([pair[side] for pair in pairs]) for side in (0, 1))
    cosines = (left * right).sum(-1) / np.linalg.norm(left, axis=-1) / np.linalg.norm(right, axis=-1)
    np.testing.assert_allclose([item["layers"] for item in by_layer], cosines, **NEAR)
    refused(server.post("/v1/similarity", pairs=[["a"]]), 422, param="pairs")


def test_models_layers_and_health(server, tiny_layers):
    models = server.client.get("/v1/models").json()
    (facts,) = models["data"]
    assert (facts["id"], facts["object"], facts["layers"], facts["width"]) == ("tiny", "model", 4, 32)
    assert (facts["max_tokens"], facts["mix"], facts["tasks"]) == (60, "4 @ mean", [])
    layers = server.client.get("/v1/layers", params={"model": "tiny"}).json()
    assert layers["layers"] == [0, 1, 2, 3, 4]
    assert {"mean", "cls", "last"} <= set(layers["poolings"])
    refused(server.client.get("/v1/layers", params={"model": "x"}), 404, "there is no model 'x'")
    assert server.client.get("/livez").json() == {"status": "alive"}
    assert server.client.get("/readyz").json() == {"status": "ready"}


def test_metrics_count_requests_and_hold_no_text(server):
    server.embed(input="some very private kitchen")
    text = server.client.get("/metrics").text
    assert 'layerwise_requests_total{path="/v1/embeddings",status="200"}' in text
    assert 'layerwise_tokens_total{model="tiny"}' in text
    assert "kitchen" not in text
    server.client.get("/some/private/path")
    assert "private" not in server.client.get("/metrics").text


def test_a_mounted_application_answers_as_one_of_its_own(server, tiny_layers):
    """There FastAPI finds the route, here the guard."""
    app = create_app({"tiny": tiny_layers})
    outer = FastAPI(lifespan=lambda _: app.router.lifespan_context(app))
    outer.mount("/inner", app)
    with TestClient(outer) as client:
        vectors = vectors_of(client.post("/inner/v1/embeddings", json={"input": SENTENCES}).json())
        np.testing.assert_allclose(vectors, server.embed(input=SENTENCES), **NEAR)
        for path, body in (
            ("/v1/embeddings", {"input": "Rain.", "layers": "9"}),
            ("/v1/similarity", {"pairs": []}),
            ("/v1/predict", {"input": ["Rain."]}),
            ("/v1/search", {"input": "Rain."}),
        ):
            mounted, here = client.post(f"/inner{path}", json=body), server.post(path, **body)
            assert (mounted.status_code, mounted.json()) == (here.status_code, here.json())
            assert here.status_code in (404, 422)


def test_predictions_equal_those_of_the_predictor(predictor):
    with running({"tasks": predictor}) as server:
        texts = ["the river clock", "an old door", "rain"]
        answer = server.post("/v1/predict", task="mood", input=texts, truncate=True).json()
        expected = predictor.predict("mood", texts)
        assert [item["label"] for item in answer["data"]] == list(expected.labels)
        shares = [list(item["probabilities"].values()) for item in answer["data"]]
        np.testing.assert_allclose(shares, expected.probabilities, **NEAR)
        pairs = [["the river", "rain"], ["an old door", "prices"]]
        answer = server.post("/v1/predict", task="near", input=pairs).json()
        numbers = predictor.predict("near", [tuple(pair) for pair in pairs]).numbers
        np.testing.assert_allclose([item["number"] for item in answer["data"]], numbers, **NEAR)
        refused(server.post("/v1/predict", task="mood", input=pairs), 422, "task 'mood' takes a list of texts")
        refused(server.post("/v1/predict", task="near", input=texts), 422, "task 'near' takes pairs of texts")
        refused(server.post("/v1/predict", task="x", input=texts), 422, "name one of the model's tasks: ", param="task")
        assert server.client.get("/v1/models").json()["data"][0]["tasks"] == list(predictor.heads)


def test_a_model_without_tasks_predicts_nothing(server):
    refused(server.post("/v1/predict", input=["a"]), 422, "tiny has no tasks; serve a model that", param="model")
    refused(server.post("/v1/search", input="a"), 404, "this server has no index; start it with --index")


@pytest.fixture(scope="module")
def embedded(tiny_bert, tmp_path_factory):
    """The sentences embedded by another mix than the model's, with their texts."""
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "rows.csv").write_text("text,copy\n" + "".join(f'"{text}","{text}"\n' for text in SENTENCES))
    job = EmbedJob(
        RowSource.of(str(folder / "rows.csv"), ("text", "copy")), shard_rows=3, normalize=True, truncate_dim=16
    )
    run_embed(job, ModelChoice(str(tiny_bert), "1,3", {"device": "cpu"}), folder / "out")
    return folder / "out"


def test_search_finds_what_was_embedded(tiny_bert, embedded):
    served = load_served(ServeSettings(models=(f"{tiny_bert}=tiny",), index=(f"mine={embedded}",), device="cpu"))
    with running(served) as server:
        answer = server.post("/v1/search", input=SENTENCES[4], top_k=3).json()
        hits = answer["data"][0]["hits"]
        assert (hits[0]["row"], hits[0]["columns"]["copy"]) == (4, SENTENCES[4])
        assert hits[0]["score"] == pytest.approx(1, abs=1e-5)
        vectors = (
            served.models["tiny"].model.with_mix("1,3").encode(SENTENCES, truncate_dim=16, normalize_embeddings=True)
        )
        cosines = vectors @ vectors[4]
        assert [hit["row"] for hit in hits] == np.argsort(-cosines)[:3].tolist()
        several = server.post("/v1/search", input=SENTENCES, index="mine", top_k=100).json()["data"]
        assert [item["hits"][0]["row"] for item in several] == list(range(len(SENTENCES)))
        assert len(several[0]["hits"]) == len(SENTENCES)
        message = "there is no index 'x'; name one of them: mine"
        refused(server.post("/v1/search", input="a", index="x"), 404, message, param="index")


def test_vectors_of_another_model_are_refused(embedded, tmp_path, tiny_layers):
    other = save_tiny("electra", tmp_path / "electra")
    with pytest.raises(
        InputError, match=r"by another model, or with another max_length, than any that is served \(electra\)"
    ):
        load_served(ServeSettings(models=(str(other),), index=(f"mine={embedded}",), device="cpu"))
    narrow = ExactIndex(np.ones((2, 5), dtype=np.float32))
    with pytest.raises(InputError, match="made with 5 numbers a vector"):
        served_index("narrow", narrow, [ServedModel("tiny", tiny_layers)], "narrow.npy")


def test_two_models_in_one_process(tiny_layers):
    other = tiny_layers.with_mix("concat(1,2)")
    with running({"tiny": tiny_layers, "other": other}) as server:
        for name, model in (("tiny", tiny_layers), ("other", other)):
            np.testing.assert_allclose(server.embed(model=name, input=SENTENCES), model.encode(SENTENCES), **NEAR)
        np.testing.assert_allclose(server.embed(input=SENTENCES), tiny_layers.encode(SENTENCES), **NEAR)


def test_models_and_indexes_have_names(tiny_bert, tmp_path):
    with pytest.raises(InputError, match="two models are called 'bert'"):
        load_served(ServeSettings(models=(str(tiny_bert), str(tiny_bert)), device="cpu"))
    with pytest.raises(InputError, match=r"index 'x': expected NAME=PATH"):
        load_served(ServeSettings(models=(str(tiny_bert),), index=("x",), device="cpu"))
    with pytest.raises(InputError, match="holds no vectors"):
        load_served(ServeSettings(models=(str(tiny_bert),), index=(f"x={tmp_path}",), device="cpu"))


@pytest.mark.slow
def test_an_index_of_faiss_is_served_as_vectors_are(tiny_bert, embedded, tmp_path):
    build_index(VectorFiles.of(embedded), tmp_path / "index", kind="hnsw")
    places = (f"exact={embedded}", f"graph={tmp_path / 'index'}")
    served = load_served(ServeSettings(models=(f"{tiny_bert}=tiny",), index=places, device="cpu"))
    with running(served) as server:
        exact, graph = (
            server.post("/v1/search", input=SENTENCES[3], index=name, top_k=4).json()["data"][0]["hits"]
            for name in ("exact", "graph")
        )
    assert [(hit["row"], hit["columns"]) for hit in graph] == [(hit["row"], hit["columns"]) for hit in exact]
    assert graph[0]["columns"]["copy"] == SENTENCES[3]
