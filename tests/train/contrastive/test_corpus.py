"""A corpus is what its files hold, less empty and repeated rows, all counted; streamed it is the same, never held."""

import json
import logging
from itertools import count, islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data import Row, Task
from layerwise.data.rows import FORMATS
from layerwise.errors import InputError, MissingColumnError
from layerwise.postprocess import ENCODER
from layerwise.train import Corpus, read_corpus
from layerwise.train.contrastive.corpus import equal_to_evaluation
from layerwise.train.contrastive.load import load_corpus, stacked_corpus
from layerwise.train.contrastive.settings import DataSettings
from layerwise.train.contrastive.text_rows import CorpusCounts, ExactDedup, RecentDedup, RowFilter

TRIPLES = [("a b", "b c", "c d"), ("e", " ", "f"), ("a b ", " b c", "c d"), ("g", "h", "i"), ("a b", "b c", "x")]


@pytest.fixture
def triples(tmp_path):
    """Five rows: one has an empty text, one is another's repetition but for white space."""
    file = tmp_path / "triples.jsonl"
    names = ("anchor", "positive", "negative")
    file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in TRIPLES))
    return file


def text_file(folder, lines, name="texts.txt"):
    file = folder / name
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def naive(rows, *, keep_duplicates=False, limit=None):
    kept, read, empty, duplicates = [], 0, 0, 0
    for given_row in rows:
        if len(kept) == limit:
            break
        row = tuple(text.strip() for text in given_row)
        read += 1
        if "" in row:
            empty += 1
        elif row in kept and not keep_duplicates:
            duplicates += 1
        else:
            kept.append(row)
    return kept, CorpusCounts(read, empty, duplicates, len(kept))


@pytest.mark.parametrize("names", [("anchor",), ("anchor", "positive"), ("anchor", "positive", "negative")])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_rows_and_counts_are_those_of_a_plain_loop(triples, names, stream, keep):
    corpus = read_corpus(triples, names, stream=stream, keep_duplicates=keep)
    kept, counts = naive([row[: len(names)] for row in TRIPLES], keep_duplicates=keep)
    assert list(corpus) == kept
    assert corpus.counts == counts
    assert corpus.width == len(names)
    assert corpus.source == "triples.jsonl"


@given(st.lists(st.tuples(*[st.sampled_from(["", " ", "a", "a ", "b", "c"])] * 2), max_size=30), st.integers(2, 6))
def test_a_filter_keeps_what_a_plain_loop_keeps(rows, limit):
    for memory in (ExactDedup(), RecentDedup(), None):
        sieve = RowFilter(memory, limit)
        kept, counts = naive(rows, keep_duplicates=memory is None, limit=limit)
        assert (list(sieve(rows)), sieve.counts) == (kept, counts)


def test_a_limit_counts_kept_rows_and_names_them(tmp_path):
    file = text_file(tmp_path, ["a", "", "a", "b", "c", "d"])
    corpus = read_corpus(file, "text", limit=2)
    assert corpus.columns == (("a", "b"),)
    assert corpus.counts == CorpusCounts(read=4, empty=1, duplicates=1, kept=2)
    assert corpus.source == "texts.txt, first 2 rows"
    assert read_corpus(file, "text", limit=9).source == "texts.txt"


def test_several_files_are_read_one_after_the_other(tmp_path):
    files = [text_file(tmp_path, [name, "same"], f"{name}.txt") for name in "abcde"]
    corpus = read_corpus(files, "text")
    assert corpus.columns == (("a", "same", "b", "c", "d", "e"),)
    assert corpus.source == "a.txt, b.txt, c.txt, and 2 more"
    assert list(read_corpus(files, "text", stream=True)) == list(corpus)


LONG = "The old mill, which stood by the river until 1962, was sold (to a family of bakers) for next to nothing."
PARTS = ["which stood by the river until 1962", "to a family of bakers", "for next to nothing."]


@pytest.mark.parametrize("stream", [False, True])
def test_clauses_follow_their_sentence(tmp_path, stream):
    file = text_file(tmp_path, [LONG, "It rained.", PARTS[1], "One two three four; " + "word " * 21])
    corpus = read_corpus(file, "text", with_clauses=True, stream=stream)
    assert [text for (text,) in corpus][:5] == [LONG, *PARTS, "It rained."]
    assert [text for (text,) in corpus][5:] == ["One two three four; " + ("word " * 21).strip(), "One two three four"]
    assert corpus.counts == CorpusCounts(read=8, duplicates=1, kept=7)
    assert corpus.source == "texts.txt with clauses"
    assert len(list(read_corpus(file, "text", with_clauses=True, limit=2, stream=stream))) == 2


def test_clauses_are_of_one_column(triples):
    with pytest.raises(InputError, match="clauses are of sentences in one column, but there are 2"):
        read_corpus(triples, ("anchor", "positive"), with_clauses=True)
    with pytest.raises(InputError, match="clauses are of sentences in one column, but columns has 2"):
        DataSettings(columns=("anchor", "positive"), clauses=True)
    stacked = load_corpus(DataSettings(files=(str(triples),), columns=("anchor", "positive"), stack=True, clauses=True))
    assert stacked.source.endswith("with clauses")


def test_only_rows_with_a_value_are_read(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text,lang\nuno,es\none,en\ntwo,en\n")
    corpus = read_corpus(file, ["text"], where=("lang", "en"))
    assert corpus.columns == (("one", "two"),)
    assert corpus.counts.read == 2
    assert corpus.source == "rows.csv (lang = en)"


def test_a_null_is_an_empty_text_but_a_number_is_an_error(tmp_path):
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a", None, "b"], "n": [1, 2, 3]}), file)
    assert read_corpus(file, "text").counts == CorpusCounts(3, 1, 0, 2)
    with pytest.raises(InputError, match=r"rows.parquet:1: column 'n' is 1, expected a text"):
        read_corpus(file, "n")


def test_texts_at_hand_are_cleaned_too():
    corpus = Corpus.of(["a", "b", "a"], ["x", "y ", "x"], source="three")
    assert corpus.columns == (("a", "b"), ("x", "y"))
    assert len(corpus) == corpus.rows == 2
    assert corpus.fitted_on.what == ENCODER
    assert corpus.fitted_on.sentences == 4
    with pytest.raises(InputError, match=r"columns have 2, 1 rows; give equally many"):
        Corpus.of(["a", "b"], ["x"], source="unlike")
    with pytest.raises(InputError, match=r"a column is one string"):
        Corpus.of("a text", source="text")
    with pytest.raises(InputError, match=r"0 columns of texts"):
        Corpus((), "none", CorpusCounts())


@pytest.mark.parametrize("stream", [False, True])
class TestWhatCannotBeUsed:
    def test_nothing_left(self, tmp_path, stream):
        file = text_file(tmp_path, ["", "  "])
        with pytest.raises(InputError, match=r"texts.txt: nothing to train on \(2 rows read, 2 empty, 0 .*check"):
            read_corpus(file, "text", stream=stream)

    @pytest.mark.parametrize("keep", [False, True])
    def test_one_sentence_only(self, tmp_path, stream, keep):
        file = text_file(tmp_path, ["a", "a", ""])
        with pytest.raises(InputError, match=r"at least two different sentences, found one \(3 rows read, 1 empty"):
            read_corpus(file, "text", stream=stream, keep_duplicates=keep)

    def test_a_column_that_is_not_there(self, triples, stream):
        with pytest.raises(MissingColumnError, match=r"no column 'text'; it has 'anchor', 'positive', 'negative'"):
            read_corpus(triples, "text", stream=stream)

    def test_columns_of_a_text_file(self, tmp_path, stream):
        with pytest.raises(InputError, match=r"a text file has no column 'positive'"):
            read_corpus(text_file(tmp_path, "ab"), ["anchor", "positive"], stream=stream)

    def test_other_mistakes(self, tmp_path, triples, stream):
        with pytest.raises(InputError, match=r"missing.txt: no such file"):
            read_corpus([triples, tmp_path / "missing.txt"], "anchor", stream=stream)
        with pytest.raises(InputError, match=r"4 columns of texts; give one"):
            read_corpus(triples, list("abcd"), stream=stream)
        with pytest.raises(InputError, match=r"no file to train on"):
            read_corpus([], "text", stream=stream)
        with pytest.raises(InputError, match=r"limit is 1; training needs 2"):
            read_corpus(triples, "anchor", limit=1, stream=stream)


def test_rows_are_said_only_of_a_stream(triples):
    with pytest.raises(InputError, match=r"rows is for a streamed corpus"):
        read_corpus(triples, "anchor", rows=3)


def test_a_stream_can_be_read_again_and_counts_each_time(tmp_path, caplog):
    file = text_file(tmp_path, ["a", "", "b", "a", "c"])
    corpus = read_corpus(file, "text", stream=True, rows=4)
    assert corpus.rows == 4
    with caplog.at_level(logging.WARNING):
        assert list(corpus) == list(corpus) == [("a",), ("b",), ("c",)]
    assert corpus.counts == CorpusCounts(5, 1, 1, 3)
    assert "has 3 rows, not 4 as declared" in caplog.text
    assert read_corpus(file, "text", stream=True).rows is None


def test_a_stream_records_the_sentences_that_memory_would(triples):
    names = ("anchor", "positive")
    held, streamed = read_corpus(triples, names).fitted_on, read_corpus(triples, names, stream=True).fitted_on
    assert streamed.hashes.tolist() == held.hashes.tolist()
    assert (streamed.sentences, streamed.source, streamed.what) == (held.sentences, held.source, ENCODER)
    assert streamed.saw(["A, B!", "elsewhere"]) == 0.5


def test_standard_input_is_not_streamed():
    with pytest.raises(InputError, match=r"standard input cannot be streamed"):
        read_corpus("-", "text", stream=True)


def test_a_stream_reads_no_more_than_it_is_asked_for(tmp_path, monkeypatch):
    """A file without an end: whoever reads ahead without measure never comes back."""
    pulled = []

    def endless(_source):
        for place in count(1):
            pulled.append(place)
            yield Row(place, (f"sentence {place}",))

    monkeypatch.setitem(FORMATS._entries, "text", endless)
    corpus = read_corpus(text_file(tmp_path, "ab"), "text", stream=True)
    assert len(pulled) == 2
    assert list(islice(corpus, 10)) == [(f"sentence {place}",) for place in range(1, 11)]
    assert len(pulled) == 12


def test_repetitions_are_known_as_far_back_as_is_remembered():
    memory = RecentDedup(capacity=10)
    assert all(memory.is_new((str(number),)) for number in range(100))
    assert not any(memory.is_new((str(number),)) for number in range(95, 100))
    assert memory.is_new(("0",))
    assert len(memory._newer) + len(memory._older) <= 10


class TestHub:
    """A folder that the package datasets reads as it would read a data set of the hub."""

    @pytest.fixture
    def name(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        folder = tmp_path / "hubdata"
        folder.mkdir()
        for split, texts in (("train", ["a", "", "b", "a"]), ("test", ["x", "y", "y"])):
            table = pa.table({"text": texts, "other": texts, "n": list(range(len(texts)))})
            pq.write_table(table, folder / f"{split}-00000.parquet")
        return f"hub:{folder}"

    @pytest.mark.parametrize("stream", [False, True])
    def test_rows_come_as_from_a_file(self, name, stream):
        corpus = read_corpus(name, ["text", "other"], stream=stream)
        assert list(corpus) == [("a", "a"), ("b", "b")]
        assert corpus.counts == CorpusCounts(4, 1, 1, 2)
        assert corpus.source == "hubdata"
        assert list(read_corpus(f"{name}:test", "text", stream=stream)) == [("x",), ("y",)]

    def test_mistakes_are_told_in_one_line(self, name):
        with pytest.raises(MissingColumnError, match=r"no column 'anchor'; it has 'text', 'other', 'n'"):
            read_corpus(name, "anchor")
        with pytest.raises(InputError, match=r"hubdata:1: column 'n' is 0, expected a text"):
            read_corpus(name, "n")
        with pytest.raises(
            InputError, match=r"hubdata:nosplit: cannot be read from the hub: .*nosplit.*or give a file"
        ):
            read_corpus(f"{name}:nosplit", "text")
        with pytest.raises(InputError, match=r"hub:: names no data set; expected hub:owner/name"):
            read_corpus("hub:", "text")
        with pytest.raises(InputError, match=r"names no data"):
            read_corpus("hub:owner/name:", "text")

    @pytest.mark.parametrize(
        ("path", "asked"),
        [
            ("hub:o/n", ("o/n", None, "train")),
            ("hub:o/n:dev", ("o/n", None, "dev")),
            ("hub:o/n/c:dev", ("o/n", "c", "dev")),
        ],
    )
    def test_without_a_network_a_file_is_asked_for(self, path, asked, monkeypatch):
        import datasets

        calls = []

        def refuse(name, configuration, *, split, streaming):
            calls.append((name, configuration, split))
            raise ConnectionError("Couldn't reach it\non the Hub")

        monkeypatch.setattr(datasets, "load_dataset", refuse)
        with pytest.raises(
            InputError, match=rf"{path}: cannot be read .*: Couldn't reach it on the Hub; .*give a file"
        ):
            read_corpus(path, "text")
        assert calls == [asked]


class TestEqualToEvaluation:
    def test_equal_sentences_are_counted_once_by_letters_and_digits(self, tmp_path, monkeypatch):
        task_file = tmp_path / "own.csv"
        task_file.write_text("sentence1,sentence2,score\nA cat sat.,It rained,1\nNobody came!,It snowed,2\n")
        tasks = {
            "own": Task(name="own", kind="sts", file=str(task_file)),
            "away": Task(name="away", kind="sts", file=str(tmp_path / "away.csv")),
        }
        monkeypatch.setattr(
            "layerwise.train.contrastive.corpus.find_tasks", lambda names: [tasks[name] for name in names]
        )
        file = tmp_path / "rows.tsv"
        file.write_text("a\tb\na cat sat\tNew.\nA CAT SAT!\tit snowed\nfresh\tnew\n")
        for stream in (False, True):
            corpus = read_corpus(file, ["a", "b"], stream=stream)
            assert equal_to_evaluation(corpus, ["own", "away"]) == {"own": 2}
            assert equal_to_evaluation(corpus, ["away"]) == {}

    def test_unknown_tasks_are_told(self):
        with pytest.raises(InputError, match=r"Unknown task 'sts99'"):
            equal_to_evaluation(Corpus.of(["a", "b"], source="two"), ["sts99"])

    @pytest.mark.shared
    def test_a_corpus_of_test_sentences_is_found_out(self, shared):
        data = shared / "data"
        corpus = read_corpus(data / "sts" / "stsb.parquet", ["sentence1", "sentence2"], where=("split", "test"))
        found = equal_to_evaluation(corpus, ["stsb", "sickr"], data)
        assert found["stsb"] == corpus.fitted_on.different
        assert found["sickr"] < found["stsb"] / 10


def test_stacked_columns_are_one_column_and_everything_dropped_is_counted(tmp_path):
    first, second = tmp_path / "one.csv", tmp_path / "two.csv"
    first.write_text("a,b\nA cat.,It rained.\n,A dog.\nA cat.,A cat.\n")
    second.write_text("a,b\nA bird.,\n")
    stacked = stacked_corpus([str(first), str(second)], ("a", "b"))
    assert stacked.columns == (("A cat.", "It rained.", "A dog.", "A bird."),)
    assert stacked.counts == CorpusCounts(read=8, empty=2, duplicates=2, kept=4)
    assert (stacked.source.count("one.csv"), stacked.source.count("two.csv")) == (1, 1)
    few = stacked_corpus([str(first), str(second)], ("a", "b"), limit=2)
    assert few.columns == (("A cat.", "It rained."),)
    assert few.source.endswith("first 2 rows")
    whole = stacked_corpus([str(first)], ("a", "b"), keep_duplicates=True)
    assert whole.columns == (("A cat.", "A cat.", "It rained.", "A dog.", "A cat."),)
