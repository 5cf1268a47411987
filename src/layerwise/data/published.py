"""Files as their authors published them -> rows with our columns: sentence1, sentence2, score, subset / text, label.

A reader is a registered name. It takes `read` (a path in the repository -> the file's bytes) and the options of its
source, and yields one dictionary a row. Classes become numbers in the order of `classes`, or sorted, as SentEval does;
white space around a text is dropped.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from layerwise.data.labels import as_number
from layerwise.errors import InputError
from layerwise.registry import Registry

Read = Callable[[str], bytes]
Rows = Iterator[dict[str, Any]]
READERS: Registry[Callable[..., Rows]] = Registry("reader")

_SICK = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
_MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
_QUORA = ("", "id", "sentence1", "sentence2", "is_duplicate")
_PROBING = {"tr": "train", "va": "dev", "te": "test"}


@READERS.register("sts-year")
def _sts_year(read: Read, *, subsets: Sequence[str]) -> Rows:
    """A SemEval year as SentEval lays it out: STS.input.X.txt beside STS.gs.X.txt, where a pair may have no grade."""
    for subset in subsets:
        pairs, grades = f"STS.input.{subset}.txt", f"STS.gs.{subset}.txt"
        left, right = list(_lines(read, pairs)), list(_lines(read, grades))
        if len(left) != len(right):
            raise InputError(f"{pairs}: {len(left)} pairs, but {grades} has {len(right)} grades; fetch them again")
        for (number, pair), (_, grade) in zip(left, right, strict=True):
            if grade.strip():
                first, second, *_ = _split(pair, 2, pairs, number)
                yield _pair(first, second, subset, "test", score=_number(grade, grades, number))


@READERS.register("stsb")
def _stsb(read: Read, *, files: Mapping[str, str]) -> Rows:
    """STS benchmark: genre, file, year, id, score, sentence, sentence, and perhaps more, separated by tabs."""
    for split, path in files.items():
        for number, line in _filled(read, path):
            genre, file, _, _, score, first, second, *_ = _split(line, 7, path, number)
            yield _pair(first, second, f"{genre}/{file}", split, score=_number(score, path, number))


@READERS.register("sick")
def _sick(read: Read, *, files: Mapping[str, str]) -> Rows:
    """SICK, with its grades and its entailment."""
    for split, path in files.items():
        for number, (_, first, second, score, entailment, *_) in _headed(_tabs(read, path, 5), _SICK, path):
            grade = _number(score, path, number)
            yield _pair(first, second, "sick", split, score=grade) | {"entailment": entailment.strip()}


@READERS.register("csv-pairs")
def _csv_pairs(read: Read, *, files: Mapping[str, str], subset: str) -> Rows:
    """CSV without a header: sentence, sentence, score."""
    for split, path in files.items():
        for number, (first, second, score, *_) in _csv(read, path, ",", 3):
            yield _pair(first, second, subset, split, score=_number(score, path, number))


@READERS.register("mrpc")
def _mrpc(read: Read, *, files: Mapping[str, str]) -> Rows:
    """Microsoft's paraphrases: Quality, two ids, two strings; quotation marks have no special meaning."""
    for split, path in files.items():
        for number, (quality, _, _, first, second, *_) in _headed(_tabs(read, path, 5), _MRPC, path):
            yield _pair(first, second, "", split, label=int(_number(quality, path, number)))


@READERS.register("quora")
def _quora(read: Read, *, files: Mapping[str, str]) -> Rows:
    """Quora's questions as split for CS224N; rows that lack a question or a label are dropped."""
    for split, path in files.items():
        for number, (_, _, first, second, label, *_) in _headed(_csv(read, path, "\t", 5), _QUORA, path):
            if first.strip() and second.strip() and label.strip():
                yield _pair(first, second, "", split, label=int(_number(label, path, number)))


@READERS.register("polarity")
def _polarity(read: Read, *, positive: str, negative: str) -> Rows:
    """Two files of sentences in Latin-1, one of each class. SentEval counts empty lines too, and so do papers."""
    for label, path in ((1, positive), (0, negative)):
        for _, line in _lines(read, path, "latin-1"):
            yield {"text": line.strip(), "label": label, "split": "all"}


@READERS.register("text-label")
def _text_label(
    read: Read, *, files: Mapping[str, str], classes: Sequence[str] = (), alternate: Sequence[str] = ()
) -> Rows:
    """A sentence, a tab and its class. With `alternate` the rows of each file go to those splits in turn."""
    rows = []
    for split, path in files.items():
        for place, (number, line) in enumerate(_filled(read, path)):
            text, label, *_ = _split(line, 2, path, number)
            rows.append((text, label, alternate[place % len(alternate)] if alternate else split))
    return _classified(rows, classes)


@READERS.register("label-text")
def _label_text(read: Read, *, files: Mapping[str, str], classes: Sequence[str] = (), encoding: str = "utf-8") -> Rows:
    """A class, a space and its sentence; of a class such as DESC:manner only the part before the colon."""
    rows = []
    for split, path in files.items():
        for number, line in _filled(read, path, encoding):
            label, text, *_ = _split(line.strip(), 2, path, number, mark=" ", most=1)
            rows.append((text, label.partition(":")[0], split))
    return _classified(rows, classes)


@READERS.register("parallel-lines")
def _parallel_lines(read: Read, *, parts: Sequence[Mapping[str, str]], first_class: int = 0) -> Rows:
    """Files whose lines belong together, one a column; `first_class` is the number of the first class in the files.

    A part names its split, its subset where there are any, and the file of each column.
    """
    for part in parts:
        named = {key: value for key, value in part.items() if key in ("split", "subset")}
        files = {column: path for column, path in part.items() if column not in named}
        lines = {column: list(_lines(read, path)) for column, path in files.items()}
        if len({len(of_file) for of_file in lines.values()}) > 1:
            counts = ", ".join(f"{files[column]} {len(of_file):,}" for column, of_file in lines.items())
            raise InputError(f"files of one part have different numbers of lines: {counts}; fetch them again")
        for row in zip(*lines.values(), strict=True):
            values: dict[str, Any] = {column: text.strip() for column, (_, text) in zip(files, row, strict=True)}
            if "label" in values:
                values["label"] = int(_number(values["label"], files["label"], row[0][0])) - first_class
            yield values | named


@READERS.register("senteval-probing")
def _probing(read: Read, *, file: str, classes: Sequence[str] = ()) -> Rows:
    """SentEval's probing files: tr, va or te, the class, the sentence, separated by tabs."""
    rows = []
    for number, line in _filled(read, file):
        part, label, text, *_ = _split(line, 3, file, number)
        if part not in _PROBING:
            raise InputError(f"{file}:{number}: part {part!r}; expected one of {', '.join(_PROBING)}")
        rows.append((text, label, _PROBING[part]))
    return _classified(rows, classes)


def _pair(first: str, second: str, subset: str, split: str, **graded: float) -> dict[str, Any]:
    named = {"subset": subset} if subset else {}
    return {"sentence1": first.strip(), "sentence2": second.strip(), **graded, **named, "split": split}


def _classified(rows: Sequence[tuple[str, str, str]], classes: Sequence[str]) -> Rows:
    """(text, class, split) -> rows whose labels are numbers."""
    labels = [label.strip() for _, label, _ in rows]
    order = {name: place for place, name in enumerate(classes or sorted(set(labels)))}
    for (text, _, split), label in zip(rows, labels, strict=True):
        if label not in order:
            raise InputError(f"class {label!r} of {text[:40]!r}; expected one of {', '.join(order)}")
        yield {"text": text.strip(), "label": order[label], "split": split}


def _lines(read: Read, path: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Lines with their numbers. Only a line feed ends one: texts hold other separators."""
    try:
        text = read(path).decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not {encoding} ({error.reason}); the published file has changed") from error
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        yield number, line.rstrip("\r")


def _filled(read: Read, path: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in _lines(read, path, encoding) if line.strip())


def _tabs(read: Read, path: str, columns: int) -> Iterator[tuple[int, list[str]]]:
    for number, line in _filled(read, path):
        yield number, _split(line, columns, path, number)


def _csv(read: Read, path: str, delimiter: str, columns: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for _, line in _lines(read, path)), delimiter=delimiter, strict=True)
    try:
        for record in filter(None, reader):
            yield reader.line_num, _enough(record, columns, path, reader.line_num)
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error


def _headed(rows: Iterable[tuple[int, list[str]]], header: Sequence[str], path: str) -> Iterator[tuple[int, list[str]]]:
    """The rows below a header, which must be the expected one: otherwise columns may have moved."""
    for number, row in rows:
        if number > 1:
            yield number, row
        elif [name.strip() for name in row[: len(header)]] != list(header):
            raise InputError(f"{path}:1: the header is {', '.join(row)}; expected {', '.join(header)}")


def _split(line: str, columns: int, path: str, number: int, *, mark: str = "\t", most: int = -1) -> list[str]:
    return _enough(line.split(mark, most), columns, path, number)


def _enough(record: list[str], columns: int, path: str, number: int) -> list[str]:
    if len(record) < columns:
        raise InputError(f"{path}:{number}: {len(record)} columns, expected {columns}; the file may be incomplete")
    return record


def _number(text: str, path: str, number: int) -> float:
    value = as_number(text)
    if value is None:
        raise InputError(f"{path}:{number}: {text!r} is not a number; the file may be incomplete")
    return value
