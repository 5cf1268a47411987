"""Data from strangers: any bytes are rows or one line; no page, card or terminal obeys a text."""

import csv
import io
import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from attack import Attack, Tally

from layerwise.errors import LayerwiseError, printable

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from support.tiny import WORDS, save_tiny

os.environ["HF_HUB_OFFLINE"] = "1"
_ROWS = "tests/data/test_untrusted_rows.py"
_SHOWN = "tests/cli/test_untrusted_texts.py"
_HOSTILE = (
    "<script>alert('canary')</script>",
    "<img src=x onerror=alert('canary')>",
    '"><svg onload=alert("canary")>',
    "</style></script><b onmouseover=alert('canary')>",
    "javascript:alert('canary')",
    "{{ 7 * 7 }} {% raw %} ${7*7} `canary`",
    "[link](javascript:alert('canary')) | cell | cell",
    "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "over\rwritten\x08\x7f\x9b31m",
    "\u202egnp.exe\u2066 \u2028\u2029 \u200f",
    '=HYPERLINK("http://x","canary")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "-2+3",
    "\0 nul \x01\x02",
    "&lt;script&gt; &#x1b;",
)
_LONG_LINE = 100 << 20


@cache
def _model() -> Path:
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="layerwise-attack-"))
    return save_tiny("bert", folder / "model")


def _command(*arguments: object) -> tuple[int, str]:
    """Run a command in this process: its exit code, and all that it printed."""
    from layerwise.cli.app import main

    logging.getLogger().handlers.clear()
    screen, code = io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["layerwise", *map(str, arguments)]),
        patch.dict(os.environ, {"COLUMNS": "160"}),
        redirect_stdout(screen),
        redirect_stderr(screen),
    ):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, screen.getvalue()


def _check_screen(tally: Tally, what: str, code: int, printed: str) -> None:
    raw = sorted({char for char in printed if char != "\n" and printable(char) != char})
    tally.check(not raw, f"{what}: printed {raw}")
    tally.check(code in (0, 2), f"{what}: exit code {code}")
    tally.check("Traceback" not in printed, f"{what}: a traceback")


def _pairs(random: np.random.Generator, count: int = 48) -> list[dict]:
    """Graded pairs whose first texts hold hostile ones."""
    rows = []
    for number in range(count):
        words = " ".join(random.choice(WORDS, 4))
        text = f"{_HOSTILE[number % len(_HOSTILE)]} {words}"
        rows.append({"sentence1": text, "sentence2": words, "score": float(random.integers(0, 6))})
    return rows


def _write_rows(path: Path, rows: list[dict]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def terminal(random: np.random.Generator, folder: Path) -> Tally:
    """Control characters in texts, columns, names of files and models."""
    tally, model = Tally(), _model()
    pairs = _write_rows(folder / "pairs\x1b[2J\u202e.jsonl", _pairs(random))
    column = "te\x1b[2Jxt\u202e\r"
    odd = _write_rows(folder / "odd\x1b[31m.csv", [{column: text} for text in _HOSTILE])
    commands = [
        ("search", model, pairs),
        ("search", model, pairs, "--json"),
        ("search", model, pairs, "--where", "x\x1b=1"),
        ("search", model, pairs, "--left", column),
        ("search", model, folder / "missing\x1b[2J.csv"),
        ("analyze", model, "--pairs", pairs, "--measure", "tokens"),
        ("analyze", model, "--pairs", pairs, "--measure", "tokens", "--sentence", _HOSTILE[7]),
        ("analyze", model, "--pairs", pairs, "--measure", "scores,projection"),
        ("analyze", model, "--pairs", pairs, "--measure", "tokens", "--json"),
        ("embed", model, odd, "-o", folder / "out\x1b[2J", "--column", column),
        ("embed", model, odd, "-o", folder / "other", "--column", "te\x1bxt"),
        ("embed", model, odd, "-o", folder / "other", "--encoding", "x\x1b"),
        ("embed", f"{model}\x1b[2J", odd, "-o", folder / "other"),
        ("fit", model, odd, "-o", folder / "fitted\u202e", "--column", column),
        ("info", folder / "fitted\u202e"),
        ("info", folder / "fitted\u202e", "--json"),
        ("evaluate", model, "--task", "x\x1b[2J"),
        ("compare", folder / "a\x1b.json", folder / "b\x1b.json"),
    ]
    for command in commands:
        code, printed = _command(*command)
        _check_screen(tally, ascii(" ".join(map(str, command)))[:80], code, printed)
    labels = _write_rows(folder / "labels.csv", [{"text": text, "label": text} for text in _HOSTILE * 3])
    task = folder / "task.toml"
    task.write_text(f'[[task]]\nname = "odd"\nkind = "classification"\nfile = "{labels.name}"\n')
    code, printed = _command("evaluate", model, task)
    _check_screen(tally, "evaluate hostile labels", code, printed)
    return tally


class _Tags(HTMLParser):
    """What of a page could run: scripts, handlers, and addresses of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts, self.active = 0, []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count scripts, note handlers."""
        self.scripts += tag == "script"
        for name, value in attrs:
            address = name in ("href", "xlink:href", "src", "action") and (value or "").strip().lower()
            if name.startswith("on") or str(address).startswith("javascript:"):
                self.active.append(f"{tag} {name}")


def pages(random: np.random.Generator, folder: Path) -> Tally:
    """Markup and script in sentences, columns and names, through the report, figures and model cards."""
    tally, model = Tally(), _model()
    plain = [row | {"sentence1": " ".join(random.choice(WORDS, 5))} for row in _pairs(random)]
    seen = []
    for name, rows in (("plain", plain), ("<script>alert('canary')</script>".replace("/", "⁄"), _pairs(random))):
        pairs = _write_rows(folder / f"{name}.jsonl", rows)
        page = folder / f"{len(seen)}.html"
        code, printed = _command("report", model, "--pairs", pairs, "-o", page)
        tally.check(code == 0, f"report: {printed[-200:]}")
        tags = _Tags()
        tags.feed(page.read_text(encoding="utf-8"))
        seen.append((tags.scripts, tags.active))
    tally.check(seen[0] == seen[1], f"report: a hostile page has {seen[1]}, a plain one {seen[0]}")
    pairs = _write_rows(folder / "pairs.jsonl", _pairs(random))
    for text in _HOSTILE[:8]:
        figure = folder / "figure.svg"
        sentence = f"{text} {WORDS[0]}"
        options = ("--measure", "tokens", "--sentence", sentence, "-o", figure)
        code, printed = _command("analyze", model, "--pairs", pairs, *options)
        _check_screen(tally, f"figure of {text!r}", code, printed)
        if code == 0:
            tags = _Tags()
            tags.feed(figure.read_text(encoding="utf-8"))
            tally.check(not tags.scripts and not tags.active, f"figure of {text!r}: {tags.active}")
    from layerwise.model import LayerModel

    for number, text in enumerate(_HOSTILE):
        out = folder / f"card-{number}"
        hostile = {"chosen": text, "training": {text: [text], "note": text}}
        LayerModel.load(model, device="cpu").replaced(**hostile).save(out)
        card = (out / "README.md").read_text(encoding="utf-8")
        raw = [char for char in card if char != "\n" and printable(char) != char]
        tally.check("<" not in card and not raw, f"card of {text!r}")
        loaded = LayerModel.load(out, device="cpu")
        tally.check(loaded.chosen == text, f"card of {text!r}: comes back as {loaded.chosen!r}")
    return tally


def tables(random: np.random.Generator, folder: Path) -> Tally:
    """Cells that a spreadsheet takes for formulas, delimiters, quotes and newlines: files hold the data unchanged."""
    from layerwise.data import RowSource, text_of

    tally, model = Tally(), _model()
    pairs = _write_rows(folder / "pairs.jsonl", _pairs(random))
    out = folder / "tokens.csv"
    for text in (*_HOSTILE, 'a "b", c', "a\nb", "a;b\tc"):
        code, printed = _command(
            *("analyze", model, "--pairs", pairs, "--measure", "tokens", "--sentence", f"{text} rain", "-o", out)
        )
        _check_screen(tally, f"table of {text!r}", code, printed)
        if code == 0:
            rows = list(csv.reader(io.StringIO(out.read_text(encoding="utf-8"), newline="")))
            tally.check(len({len(row) for row in rows}) == 1, f"table of {text!r}: rows of unlike length")
    table = folder / "sets.csv"
    code, printed = _command("search", model, pairs, "--table", table)
    tally.check(code == 0, f"search: {printed[-200:]}")
    cells = [cell for row in csv.reader(table.open(encoding="utf-8")) for cell in row]
    tally.check(not any(cell.startswith(("=", "@", "+", "\t")) for cell in cells), "search --table: a formula")
    carried = folder / "carried.csv"
    _write_rows(carried, [{"text": "rain", "note": text} for text in _HOSTILE])
    source = RowSource.of(str(carried), ("note",))
    tally.check([text_of(source, row, 0) for row in source] == list(_HOSTILE), "CSV: texts changed on the way")
    return tally


def _files(random: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Files of rows that are not what their ending says."""
    text = [
        b"",
        b"\0" * 100,
        b"text\n\xff\xfe\n",
        b"\xef\xbb\xbftext\na\n",
        "text\na\n".encode("utf-16"),
        b"text\ra\rb",
    ]
    text += [b'text\n"open', b'text\n"a"b\n', b"text\r\na\nb\r\n", b"text,text\na,b\n", b"a" * 10**6, b"\n" * 1000]
    text += [b"text\na\xed\xa0\x80\n", b"text\n" + "\u2028\x85\x1c".encode() + b"\n", b'"te\nxt"\na\n']
    for number, content in enumerate(text):
        yield from ((f"{number}.{ending}", content) for ending in ("txt", "csv", "tsv", "jsonl", "parquet"))
    lines = [b"[1]", b"7", b'"x"', b"null", b'{"text":', b'{"text":"\\ud800"}', b'{"text":1e999}', b'{"text":NaN}']
    lines += [b'{"text":' + b"[" * 10**5, b'{"text":' + b"9" * 10**5 + b"}", b'{"text":{"a":1}}', b'{"text":null}']
    lines += [b'{"a":1}', b'{"text":"a","text":"b"}', b'{"text":"a"}{"text":"b"}', b'{"text":"' + b"\\" * 9 + b'"}']
    yield from ((f"{number}-line.jsonl", line + b"\n") for number, line in enumerate(lines))
    whole = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b", None], "score": [1.0, 2.0, 3.0]}), whole)
    good = whole.getvalue()
    yield from ((f"{cut}-cut.parquet", good[:cut]) for cut in (4, 8, len(good) // 2, len(good) - 1))
    for number in range(150):
        flipped = bytearray(good)
        flipped[random.integers(len(good))] ^= 1 << int(random.integers(8))
        yield f"{number}-flip.parquet", bytes(flipped)


def _odd_tables() -> Iterator[tuple[str, pa.Table]]:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], dtype=np.int32).tobytes()), pa.py_buffer(b"\xff\xfe")]
    )
    columns = {
        "nested": pa.array([["a"]]),
        "struct": pa.array([{"a": 1}]),
        "null": pa.nulls(3),
        "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
        "large": pa.array(["a"], pa.large_string()),
        "view": pa.array(["a"], pa.string_view()),
        "binary": pa.array([b"\xff"]),
        "duration": pa.array([2**62], pa.duration("s")),
        "empty": pa.array([], pa.string()),
        "not-utf-8": broken,
    }
    yield from ((name, pa.table({"text": column})) for name, column in columns.items())


def _read(path: Path) -> int:
    from layerwise.data import RowSource, text_of

    source = RowSource.of(str(path), ("text",))
    return sum(len(text_of(source, row, 0)) for row in source)


def files(random: np.random.Generator, folder: Path) -> Tally:
    """Bytes of every kind under every ending."""
    tally = Tally()
    paths = []
    for name, content in _files(random):
        (folder / name).write_bytes(content)
        paths.append(folder / name)
    for name, table in _odd_tables():
        pq.write_table(table, folder / f"{name}.parquet")
        paths.append(folder / f"{name}.parquet")
    for path in paths:
        try:
            _read(path)
            told = "a value"
        except LayerwiseError as error:
            told = str(error)
            tally.check(path.name in told, f"{path.name}: the error does not name the file: {told}")
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what the attack looks for
            tally.check(False, f"{path.name}: {type(error).__name__}: {error}")
            continue
        tally.check(len(told.splitlines()) == 1 and printable(told) == told, f"{path.name}: {told!r}")
    return tally


def scores(random: np.random.Generator, folder: Path) -> Tally:
    """Scores and labels that are no numbers or no classes, or hardly."""
    tally, model = Tally(), _model()
    values = ["nan", "inf", "-inf", "1e999", "1,5", "0x10", "", "x", "\ud800", None, [], {}, [1], 10**400]
    rows = _pairs(random)
    for number, value in enumerate(values):
        odd = [row | {"score": value} if place == 7 else row for place, row in enumerate(rows)]
        path = _write_rows(folder / f"{number}.jsonl", odd)
        code, printed = _command("search", model, path)
        _check_screen(tally, f"score {value!r}", code, printed)
        tally.check(code == 2 and f"{path.name}:8:" in printed, f"score {value!r}: {printed[-200:]}")
    for value in (1e308, -1e308, 1e-320, 1e16):
        odd = [row | {"score": row["score"] * value} for row in rows]
        path = _write_rows(folder / "large.jsonl", odd)
        for metric in ("pearson", "spearman"):
            code, printed = _command("search", model, path, "--metric", metric, "--json")
            _check_screen(tally, f"scores of {value}", code, printed)
            fine = code == 2 or json.loads(printed[printed.index("{") :])["best"]["test"] is not None
            tally.check(fine, f"scores of {value} by {metric}: no number and no error")
    return tally


def _embed_alone(path: Path, out: Path) -> tuple[int, str, int]:
    """The command in a process of its own: exit code, the last line of its errors, bytes of memory at its peak."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))

    command = [sys.executable, "-m", "layerwise", "embed", str(_model()), str(path), "-o", str(out), "--device", "cpu"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=limited
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, (errors.splitlines() or [""])[-1], used.ru_maxrss * 1024


def long_lines(_random: np.random.Generator, folder: Path) -> Tally:
    """A line of 100 MB: words, one word, no newline, one JSON object."""
    tally = Tally()
    contents = {
        "words.txt": b"rain river " * (_LONG_LINE // 11) + b"\n",
        "word.txt": b"a" * _LONG_LINE,
        "line.jsonl": b'{"text": "' + b"rain " * (_LONG_LINE // 5) + b'"}\n',
        "field.csv": b"text\n" + b"rain " * (_LONG_LINE // 5) + b"\n",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        code, told, memory = _embed_alone(folder / name, folder / f"out-{name}")
        tally.check(code == 0 or (code == 2 and told.startswith("error: ")), f"{name}: {code} {told[-200:]}")
        tally.check(memory < 20 * _LONG_LINE, f"{name}: took {memory >> 20} MB")
        (folder / name).unlink()
    return tally


def look_alikes(_random: np.random.Generator, folder: Path) -> Tally:
    """Classes that differ only by spaces around them or by Unicode form."""
    from layerwise.data import Task, read_task

    tally = Tally()
    task = Task(name="x", kind="classification", file="x.csv", columns={"left": "text", "label": "label"})
    alike = [("café", "cafe\u0301"), ("yes", "yes "), ("no", "\u00a0no"), ("ﬁne", "fine"), ("\u212b", "\u00c5")]
    for first, second in [*alike, ("yes", "no"), ("1", "1.0"), ("a", "A")]:
        _write_rows(folder / "rows.csv", [{"text": "a", "label": first}, {"text": "b", "label": second}])
        warned: list[str] = []
        watch = logging.Handler()
        watch.emit = lambda record, into=warned: into.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("layerwise.data.task_rows")
        log.addHandler(watch)
        read_task(task, folder / "rows.csv")
        log.removeHandler(watch)
        told = any("two classes" in message for message in warned)
        tally.check(told == ((first, second) in alike), f"{first!r} and {second!r}: told {warned}")
    return tally


ATTACKS = [
    Attack(
        "terminal",
        "escape sequences, carriage returns and bidi controls in texts, labels, columns and names of files and models",
        "nothing printed holds a raw control character",
        terminal,
        mended="escape sequences of texts, columns and file names reached the terminal; they are written out now",
        test=_SHOWN,
    ),
    Attack(
        "pages",
        "markup and script in sentences and names, through the report, SVG figures and model cards",
        "a page of hostile texts runs what a page of plain texts runs; a card holds no markup",
        pages,
        mended="model cards kept markup and control characters of texts; cells are escaped now",
        test=_SHOWN,
    ),
    Attack(
        "tables",
        "formulas, quotes, delimiters and newlines in cells of CSV files",
        "files hold the data unchanged and read back the same; our own cells are no formulas",
        tables,
        test=_SHOWN,
    ),
    Attack(
        "files",
        "bytes of every kind as text, CSV, TSV, JSONL and Parquet; 150 single-bit flips",
        "rows, or one line that names the file",
        files,
        mended="durations beyond Python's range in Parquet gave a traceback",
        test=_ROWS,
    ),
    Attack(
        "scores",
        "scores that are no numbers, or too large to square",
        "one line that names the row; never a missing number without a word",
        scores,
        test=_ROWS,
    ),
    Attack(
        "long-lines",
        "lines of 100 MB in every format of text",
        "embedded or refused; memory is a small multiple of the line",
        long_lines,
        mended="a line took a hundred times its size, and a second for each megabyte",
        test=_ROWS,
    ),
    Attack(
        "look-alikes",
        "classes that differ by spaces or Unicode form",
        "a warning names both; other classes give none",
        look_alikes,
        mended="two classes were made of one without a word",
        test=_ROWS,
    ),
]
