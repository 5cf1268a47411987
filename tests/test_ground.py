"""The ground floor: names that explain a miss, digests, unique texts, doors and missing extras."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.digests import file_sha256, json_digest, tensor_digest, text_digest
from layerwise.doors import door
from layerwise.errors import InputError, MissingExtraError
from layerwise.extras import require
from layerwise.muted import no_bars_in_pipes
from layerwise.registry import Registry, check_known, unknown
from layerwise.texts import unique_texts

SOURCE = Path(__file__).parents[1] / "src" / "layerwise"


def test_an_unknown_name_says_the_nearest_and_the_known_ones():
    kinds: Registry[int] = Registry("pooling")
    kinds.register("mean")(1)
    kinds.register("max")(2)
    assert list(kinds) == ["max", "mean"]
    with pytest.raises(InputError, match=r"^Unknown pooling 'maen'\. Did you mean 'mean'\? Known: max, mean$"):
        kinds["maen"]
    with pytest.raises(InputError, match=r"^Unknown head 'x'\. Known: mlp, none$"):
        check_known("x", ("mlp", "none"), "head")
    check_known("mlp", ("mlp", "none"), "head")
    assert str(unknown("task", "y", ["a"], more="; or give a file")) == "Unknown task 'y'. Known: a; or give a file"


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_unique_texts_give_every_column_back(left, right):
    texts, positions = unique_texts(left, right)
    assert texts == list(dict.fromkeys([*left, *right]))
    for column, rows in zip((left, right), positions, strict=True):
        assert rows.dtype == np.intp
        assert [texts[row] for row in rows] == column


def test_digests_tell_apart_what_differs(tmp_path):
    assert text_digest(["ab", "c"]) != text_digest(["a", "bc"]) != text_digest(["a", "bc", ""])
    assert json_digest({"a": 1, "b": 2}) == json_digest({"b": 2, "a": 1}) != json_digest({"a": 1, "b": 3})
    weights = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(2, dtype=torch.bfloat16)}
    same = {name: tensor.clone() for name, tensor in reversed(weights.items())}
    assert tensor_digest(weights) == tensor_digest(same)
    for other in ({**weights, "w": weights["w"].T}, {**weights, "w": weights["w"].reshape(3, 2)}, {"w": weights["w"]}):
        assert tensor_digest(weights) != tensor_digest(other)
    assert tensor_digest(weights) != tensor_digest(weights, label="BertModel")
    (tmp_path / "empty").write_bytes(b"")
    assert file_sha256(tmp_path / "empty") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_door_imports_on_first_use(tmp_path):
    init = tmp_path / "__init__.py"
    init.write_text(
        "if TYPE_CHECKING:\n    from layerwise.files import read_json\n    from layerwise.doors import door\n"
    )
    get, names, public = door("layerwise", str(init))
    assert names() == public == ["door", "read_json"]
    assert get("door") is door
    with pytest.raises(AttributeError, match="module 'layerwise' has no attribute 'window'"):
        get("window")


def test_a_missing_extra_is_said_with_its_install_line():
    require("report", "the report", "json")
    with pytest.raises(MissingExtraError, match=r"^it needs no_such_module: pip install 'layerwise\[report\]'$"):
        require("report", "it", "json", "no_such_module")


def test_importing_the_package_loads_neither_torch_nor_numpy():
    code = "import sys, layerwise; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


ROOMS = sorted(
    path.parent.relative_to(SOURCE.parent) for path in SOURCE.glob("*/__init__.py") if path.parent.name != "cli"
)


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_every_room_has_a_door_that_opens(room):
    package = importlib.import_module(".".join(room.parts))
    assert package.__doc__
    assert package.__all__
    modules = {path.stem for path in (SOURCE.parent / room).iterdir() if path.suffix in ("", ".py")}
    assert not modules & set(package.__all__), "a module would hide the name"
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_the_root_shows_its_public_names():
    import layerwise

    assert {"LayerEncoder", "LayerModel", "LayerTransformer", "Search", "parse_mix"} <= set(dir(layerwise))
    assert dir(layerwise) == sorted(layerwise.__all__)
    for name in layerwise.__all__:
        assert getattr(layerwise, name) is not None


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.250"), (0.0, "0.000"), (5e-6, "5e-06"), (-2e-5, "-2e-05"), (0.0006, "0.001")]
)
def test_small_numbers_are_not_shown_as_nothing(value, text):
    from layerwise.cli.screen import decimals

    assert decimals(value, 3) == text


def test_a_narrow_table_cuts_no_name(monkeypatch, capsys):
    from layerwise.cli.screen import print_table

    monkeypatch.setenv("COLUMNS", "40")
    name = "coordination_inversion_of_a_long_name"
    print_table(("task", "metric", "rows"), [(name, "accuracy", "10,000/10,000")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert "".join(line.split()[0] for line in lines[3:] if line.strip()) == name


@pytest.mark.parametrize("terminal", [True, False])
def test_bars_of_libraries_are_for_terminals(terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with no_bars_in_pipes():
        print("a bar", file=sys.stderr)
    print("the end", file=sys.stderr)
    assert capsys.readouterr().err == ("a bar\nthe end\n" if terminal else "the end\n")
