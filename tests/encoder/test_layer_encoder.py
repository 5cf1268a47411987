"""Views equal a plain transformers loop whatever the padding, batch or order; bad input and short memory are met."""

import logging
import shutil
import threading
from contextlib import suppress
from itertools import count, islice

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise import LayerEncoder
from layerwise.encoder import ahead, window_rows, windows_of
from layerwise.errors import InputError, LayerwiseError, MixError, ModelError
from support.slow_cases import one_in
from support.tiny import ARCHITECTURES, DEPTH, POSITIONS, SENTENCES, WIDTH, WORDS, save_tiny, tiny_tokenizer

NUMPY_POOLINGS = {"mean": lambda s: s.mean(0), "cls": lambda s: s[0], "max": lambda s: s.max(0)}
TOLERANCE = 1e-5
LONG = " ".join(WORDS * 4)  # more than any tiny model takes


@pytest.fixture(scope="module")
def encoders(tiny_folders) -> dict[str, LayerEncoder]:
    return {name: LayerEncoder(folder, device="cpu") for name, folder in tiny_folders.items()}


@pytest.fixture
def bert(tiny_bert) -> LayerEncoder:
    """One that a test may change."""
    return LayerEncoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def bert_views(encoders) -> np.ndarray:
    return encoders["bert"].encode_layers(SENTENCES)


def plain_views(folder, sentences: list[str]) -> dict[str, np.ndarray]:
    """What anybody would write: one sentence at a time, all hidden states kept, no padding."""
    model, tokenizer = hf.AutoModel.from_pretrained(folder).eval(), hf.AutoTokenizer.from_pretrained(folder)
    rows: dict[str, list] = {pooling: [] for pooling in NUMPY_POOLINGS}
    for sentence in sentences:
        ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            output = model(input_ids=ids, output_hidden_states=True)
        states = [*output.hidden_states[:-1], output.last_hidden_state]
        for pooling, pool in NUMPY_POOLINGS.items():
            rows[pooling].append([pool(layer[0].numpy()) for layer in states])
    return {pooling: np.array(vectors) for pooling, vectors in rows.items()}


def count_passes(encoder: LayerEncoder) -> list[tuple[int, ...]]:
    """The shapes of the batches that the model is given from now on."""
    assert encoder.depth == DEPTH  # the reader looks at the model once; that does not count
    shapes: list[tuple[int, ...]] = []
    encoder.model.register_forward_pre_hook(
        lambda _model, _args, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    return shapes


@pytest.mark.parametrize("name", one_in(2, ARCHITECTURES))
def test_views_equal_a_plain_loop(name, encoders, tiny_folders):
    for pooling, expected in plain_views(tiny_folders[name], SENTENCES).items():
        views = encoders[name].encode_layers(SENTENCES, pooling)
        assert views.shape == (len(SENTENCES), DEPTH + 1, WIDTH)
        assert views.dtype == np.float32
        np.testing.assert_allclose(views, expected, rtol=0, atol=TOLERANCE)
        assert np.abs(views[0, -1] - views[1, -1]).max() > 0.1, "sentences must differ, or the test shows nothing"


def test_depth_width_and_length_are_the_models(encoders):
    assert {(e.depth, e.width, e.max_length) for e in encoders.values()} == {(DEPTH, WIDTH, POSITIONS - 4)}


def test_several_poolings_come_from_one_pass(bert, bert_views):
    passes = count_passes(bert)
    alone = {name: bert.encode_layers(SENTENCES, name) for name in NUMPY_POOLINGS}
    each, passes[:] = len(passes) // 3, []
    together = bert.encode_layers(SENTENCES, list(NUMPY_POOLINGS))
    assert len(passes) == each
    assert sum(rows for rows, _ in passes) == len(SENTENCES)
    assert list(together) == list(NUMPY_POOLINGS)
    for name, views in together.items():
        np.testing.assert_allclose(views, alone[name], rtol=0, atol=TOLERANCE)
    assert np.array_equal(alone["mean"], bert_views)
    assert list(bert.encode_layers(SENTENCES, ["cls"])) == ["cls"], "a list of one gives a dict of one"


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join), min_size=1, max_size=8),
    st.integers(1, 4096),
    st.randoms(use_true_random=False),
)
@settings(max_examples=25, deadline=None)
def test_neither_batch_nor_padding_nor_order_changes_a_vector(encoders, sentences, budget, random):
    encoder = encoders["bert"]
    alone = np.concatenate([encoder.encode_layers([sentence]) for sentence in sentences])
    order = list(range(len(sentences)))
    random.shuffle(order)
    before, encoder.budget.tokens = encoder.budget.tokens, budget
    try:
        together = encoder.encode_layers([sentences[row] for row in order])
    finally:
        encoder.budget.tokens = before
    np.testing.assert_allclose(together, alone[order], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", one_in(2, ARCHITECTURES))
def test_batches_change_no_vector_of_any_architecture(name, tiny_folders):
    encoder = LayerEncoder(tiny_folders[name], device="cpu", tokens_per_batch=1)
    passes = count_passes(encoder)
    alone = encoder.encode_layers(SENTENCES, ["mean", "max"])
    assert [rows for rows, _ in passes] == [1] * len(SENTENCES)
    for budget in (37, 60, 4096):
        encoder.budget.tokens, passes[:] = budget, []
        for pooling, found in encoder.encode_layers(SENTENCES[::-1], ["mean", "max"]).items():
            np.testing.assert_allclose(found[::-1], alone[pooling], rtol=0, atol=TOLERANCE)
        assert all(rows * tokens <= budget for rows, tokens in passes)
        assert max(rows for rows, _ in passes) > 1, "something must have been padded"


def test_many_windows_come_back_in_order(bert, bert_views):
    times = 250  # 1750 sentences: windows of 512 and 1024 rows and a rest
    found = bert.encode_layers(SENTENCES * times, layers=[0, -1])
    np.testing.assert_allclose(found, np.tile(bert_views[:, [0, -1]], (times, 1, 1)), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("layers", [[0], [-1], [4, 0], [2, -5, 3], [1, 1], [-2], range(5)])
def test_picked_layers_come_in_their_order(layers, encoders, bert_views):
    found = encoders["bert"].encode_layers(SENTENCES, layers=layers)
    np.testing.assert_allclose(found, bert_views[:, list(layers)], rtol=0, atol=TOLERANCE)


def test_blocks_above_the_highest_picked_layer_are_not_run(bert):
    assert bert.depth == DEPTH
    ran = []
    for number, block in enumerate(bert.model.encoder.layer, start=1):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    bert.encode_layers(SENTENCES, layers=[0, 2])
    assert set(ran) == {1, 2}


@pytest.mark.parametrize("layer", [DEPTH + 1, -DEPTH - 2])
@pytest.mark.parametrize("cache", [False, True])
def test_layers_that_are_not_there_are_refused(layer, cache, encoders):
    with pytest.raises(MixError, match=f"There is no layer {layer}: this encoder has layers 0 to 4, or -5 to -1"):
        encoders["bert"].encode_layers(SENTENCES, layers=[0, layer], cache=cache)


@pytest.mark.parametrize("cache", [False, True])
def test_an_unknown_pooling_is_refused_before_any_work(cache, bert):
    passes = count_passes(bert)
    with pytest.raises(LayerwiseError, match=r"Unknown token pooling 'maen'. Did you mean 'mean'\?"):
        bert.encode_layers(SENTENCES, ["cls", "maen"], cache=cache)
    assert passes == []


@pytest.mark.parametrize("cache", [False, True])
def test_no_pooling_and_no_layers_are_refused(cache, encoders):
    with pytest.raises(LayerwiseError, match="pooling"):
        encoders["bert"].encode_layers(SENTENCES, [], cache=cache)
    with pytest.raises(LayerwiseError, match="layer"):
        encoders["bert"].encode_layers(SENTENCES, layers=[], cache=cache)


@pytest.mark.parametrize("cache", [False, True])
def test_a_pooling_named_twice_is_given_once(cache, encoders, bert_views):
    found = encoders["bert"].encode_layers(SENTENCES, ["mean", "mean"], cache=cache)
    assert list(found) == ["mean"]
    np.testing.assert_allclose(found["mean"], bert_views, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("cache", [False, True])
def test_no_sentences_give_no_rows(cache, encoders):
    assert encoders["bert"].encode_layers([], cache=cache).shape == (0, DEPTH + 1, WIDTH)
    found = encoders["bert"].encode_layers([], ["mean", "cls"], layers=[1], cache=cache)
    assert [views.shape for views in found.values()] == [(0, 1, WIDTH)] * 2


def test_empty_sentences_are_encoded_with_a_warning(encoders, caplog):
    found = encoders["bert"].encode_layers(["", "Rain.", " \t\n"])
    assert "2 of 3 sentences are empty; they are encoded as special tokens alone" in caplog.text
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], found[2], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(found[1], encoders["bert"].encode_layers(["Rain."])[0], rtol=0, atol=TOLERANCE)
    with torch.no_grad():
        states = encoders["bert"].model(input_ids=torch.tensor([[2, 3]])).last_hidden_state
    np.testing.assert_allclose(found[0, -1], states[0].mean(0).numpy(), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("sentences", [[""], ["", "Rain."]])
def test_empty_sentences_of_a_tokenizer_without_special_tokens_are_refused_or_finite(sentences, tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "bare")
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    tokenizer.save_pretrained(folder)
    try:
        found = LayerEncoder(folder, device="cpu").encode_layers(sentences)
    except LayerwiseError as error:
        assert "empty" in str(error)  # noqa: PT017 - either treatment would do
    else:
        assert np.isfinite(found).all()


def test_long_sentences_are_cut_with_a_warning_that_counts_them(encoders, caplog):
    encoder = encoders["bert"]
    found = encoder.encode_layers([LONG, "Rain.", LONG + " rain"])
    assert "2 text(s) were longer than 60 tokens and were cut there; split long texts" in caplog.text
    cut = " ".join((WORDS * 4)[: encoder.max_length - 2])
    caplog.clear()
    np.testing.assert_allclose(found[0], encoder.encode_layers([cut])[0], rtol=0, atol=TOLERANCE)
    assert caplog.text == "", "a sentence of just the model's length is not cut"
    np.testing.assert_allclose(found[2], found[0], rtol=0, atol=TOLERANCE)


def test_a_shorter_length_may_be_asked_for(tiny_bert, encoders, caplog):
    found = LayerEncoder(tiny_bert, device="cpu", max_length=6).encode_layers(["the river rose after three days"])
    assert "1 text(s) were longer than 6 tokens" in caplog.text
    np.testing.assert_allclose(found, encoders["bert"].encode_layers(["the river rose after"]), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "most"),
    [("bert", 64), ("roberta", 63), ("xlm-roberta", 63), ("mpnet", 62), ("electra", 64), ("distilbert", 64)],
)
def test_the_longest_sentence_fits_the_position_table(name, most, tmp_path):
    """RoBERTa and MPNet number their positions from behind the padding's, so they take fewer tokens than places."""
    folder = save_tiny(name, tmp_path / name)
    tiny_tokenizer(max_length=10**6).save_pretrained(folder)
    encoder = LayerEncoder(folder, device="cpu")
    assert encoder.max_length == most
    found = encoder.encode_layers([LONG, "Rain."])
    cut = " ".join((WORDS * 4)[: most - 2])
    np.testing.assert_allclose(found, plain_views(folder, [cut, "Rain."])["mean"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("length", [0, -1, 61])
def test_lengths_that_the_model_can_not_do_are_refused(length, tiny_bert):
    with pytest.raises(InputError, match=rf"max_length {length} is not possible: this encoder takes \d to 60 tokens"):
        LayerEncoder(tiny_bert, device="cpu", max_length=length)


def test_a_length_without_room_for_the_special_tokens_is_refused(tiny_bert):
    with pytest.raises(InputError, match="max_length 1 is not possible"):
        LayerEncoder(tiny_bert, device="cpu", max_length=1).encode_layers([LONG])


def test_max_length_is_either_fixed_or_followed(bert):
    with suppress(AttributeError):
        bert.max_length = 5
    same = LayerEncoder(bert.name, device="cpu", max_length=bert.max_length)
    np.testing.assert_allclose(bert.encode_layers(SENTENCES), same.encode_layers(SENTENCES), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("tokens", [0, -512])
def test_a_budget_of_nothing_is_refused(tokens, tiny_bert):
    with pytest.raises(InputError, match=f"tokens_per_batch must be 1 or more, not {tokens}"):
        LayerEncoder(tiny_bert, device="cpu", tokens_per_batch=tokens)


def test_what_is_no_list_of_texts_is_refused(encoders):
    with pytest.raises(InputError, match="sentences is one string; give a list of them"):
        encoders["bert"].encode_layers("Rain.")
    for wrong in (None, 3.5, float("nan"), b"Rain.", ["Rain."]):
        with pytest.raises(InputError, match=r"sentence 1 is .*, not a text"):
            encoders["bert"].encode_layers(["Rain.", wrong])
    assert np.array_equal(
        encoders["bert"].encode_layers(np.array(SENTENCES)), encoders["bert"].encode_layers(tuple(SENTENCES))
    )


@pytest.mark.parametrize("cache", [False, True])
def test_half_a_surrogate_pair_is_refused_with_its_row(cache, encoders):
    """What `errors="surrogateescape"` leaves of a file that is not UTF-8."""
    with pytest.raises(InputError, match="sentence 1"):
        encoders["bert"].encode_layers(["Rain.", "ra\udce4in"], cache=cache)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize(("dtype", "share"), [("bfloat16", 0.03), ("float16", 0.003)])
@pytest.mark.parametrize("name", ["bert", "mpnet", "deberta-v2", "modernbert"])
def test_half_precision_gives_float32_close_to_float32s(name, dtype, share, encoders, tiny_folders):
    encoder = LayerEncoder(tiny_folders[name], device="cpu", dtype=dtype)
    assert {str(parameter.dtype) for parameter in encoder.model.parameters()} == {f"torch.{dtype}"}
    exact = encoders[name].encode_layers(SENTENCES, list(NUMPY_POOLINGS))
    for pooling, found in encoder.encode_layers(SENTENCES, list(NUMPY_POOLINGS)).items():
        assert found.dtype == np.float32
        assert 0 < np.abs(found - exact[pooling]).max() < share * np.abs(exact[pooling]).max()


def test_dropout_is_off(bert, bert_views):
    assert not bert.model.training
    assert bert.model.config.hidden_dropout_prob > 0
    assert np.array_equal(bert.encode_layers(SENTENCES), bert.encode_layers(SENTENCES))
    bert.model.train()
    assert np.abs(bert.encode_layers(SENTENCES) - bert_views).max() > 0.01, "dropout on would be seen"


def short_of_memory(encoder: LayerEncoder, monkeypatch, error: Exception, most: int) -> list[int]:
    """Let the reader fail on batches above `most` tokens; the sizes of those that went through."""
    read, sizes = encoder.reader.read, []

    def limited(inputs, wanted, pool):
        size = inputs["input_ids"].numel()
        if size > most:
            raise error
        sizes.append(size)
        return read(inputs, wanted, pool)

    monkeypatch.setattr(encoder.reader, "read", limited)
    return sizes


@pytest.mark.parametrize(
    "error",
    one_in(
        2,
        [
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: not enough memory: you tried to allocate"
            ),
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"),
            MemoryError(),
        ],
    ),
    ids=["cuda", "cpu", "posix", "python"],
)
def test_short_memory_halves_the_budget_and_changes_nothing(error, tiny_bert, monkeypatch, caplog):
    encoder = LayerEncoder(tiny_bert, device="cpu", tokens_per_batch=4000)
    expected = encoder.encode_layers(SENTENCES * 30)
    sizes = short_of_memory(encoder, monkeypatch, error, most=300)
    found = encoder.encode_layers(SENTENCES * 30)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    assert 75 <= encoder.budget.tokens <= 300
    assert max(sizes) <= 300
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warned[-1] == f"Out of memory: continuing with at most {encoder.budget.tokens} tokens a batch"
    caplog.clear()
    encoder.encode_layers(SENTENCES * 30)
    assert caplog.text == "", "the smaller budget stays"


def test_a_sentence_too_long_for_the_memory_is_refused(bert, monkeypatch):
    short_of_memory(bert, monkeypatch, torch.OutOfMemoryError("out of memory"), most=10)
    with pytest.raises(ModelError, match="Not enough memory on cpu for one sentence of 23 tokens; lower max_length"):
        bert.encode_layers(SENTENCES)


def test_other_errors_of_torch_pass_through(bert, monkeypatch, caplog):
    short_of_memory(bert, monkeypatch, RuntimeError("mat1 and mat2 shapes cannot be multiplied"), most=10)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        bert.encode_layers(SENTENCES)
    assert caplog.text == ""


def test_stream_gives_one_array_a_window_in_order(bert):
    windows = [SENTENCES[:3], SENTENCES[3:4], SENTENCES[::-1], ["Rain."] * 40]
    done = []
    lengths = bert.stream(iter(windows), lambda _tokens, mask: mask.sum(1, keepdim=True).float(), progress=done.append)
    expected = [[len(ids) for ids in bert.tokenizer(window)["input_ids"]] for window in windows]
    assert [array[:, 0].tolist() for array in lengths] == expected
    assert sum(done) == sum(map(len, windows))


def test_stream_reads_no_further_than_it_must(bert):
    taken = []
    endless = (taken.append(number) or [f"rain {number}"] for number in count())
    assert len(list(islice(bert.stream(endless, lambda tokens, _mask: tokens.float()), 5))) == 5
    assert len(taken) <= 5 + 4


def test_sentences_are_tokenised_in_another_thread(bert, monkeypatch):
    inner, threads = bert._sentences, []

    class Watched:
        max_length = inner.max_length

        def __call__(self, texts):
            threads.append(threading.get_ident())
            return inner(texts)

    monkeypatch.setattr(bert, "_sentences", Watched())
    bert.encode_layers(SENTENCES)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_an_error_while_tokenising_reaches_the_caller(bert, monkeypatch):
    class Broken:
        max_length = 60

        def __call__(self, texts):
            raise UnicodeError("no such letters")

    monkeypatch.setattr(bert, "_sentences", Broken())
    with pytest.raises(UnicodeError, match="no such letters"):
        bert.encode_layers(SENTENCES)


def test_ahead_is_map_two_items_ahead():
    started, release = [], threading.Event()

    def double(number: int) -> int:
        started.append(number)
        if number == 3:
            release.set()
        return 2 * number

    results = ahead(double, count(1))
    assert next(results) == 2
    assert release.wait(timeout=10), "item 3 is computed while the caller still looks at item 1"
    assert list(islice(results, 3)) == [4, 6, 8]
    assert max(started) <= 6, "and no further"
    assert list(ahead(str, [])) == []

    def broken(number: int) -> int:
        return 10 // (3 - number)

    found = ahead(broken, range(10))
    assert [next(found), next(found), next(found)] == [3, 5, 10]
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_windows_grow_to_the_most_and_lose_nothing():
    texts = [str(number) for number in range(5000)]
    windows = list(windows_of(texts, 2000))
    assert [len(window) for window in windows] == [512, 768, 1152, 1728, 840]
    assert [text for window in windows for text in window] == texts
    assert [len(window) for window in windows_of(texts[:150], 100)] == [100, 50]
    assert list(windows_of([], 100)) == []
    assert window_rows(4 * 13 * 768) == 1680
    assert (window_rows(4), window_rows(10**9)) == (16_384, 64)
