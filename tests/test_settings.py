"""Settings are valid or an error of one line, whatever builds them."""

from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field, model_validator

from layerwise.errors import InputError
from layerwise.settings import Settings, parse_settings, parse_toml, read_toml


class Inner(Settings):
    label: ClassVar[str] = "[inner]"
    rate: Annotated[float, Field(ge=0, lt=1)] = 0.1


class Sample(Settings):
    label: ClassVar[str] = "[sample]"
    name: str
    count: Annotated[int, Field(ge=3)] = 3
    rate: Annotated[float, Field(gt=0)] = 1.0
    head: Literal["none", "mlp", "linear"] = "none"
    columns: tuple[str, ...] = ("text",)
    betas: tuple[float, float] = (0.9, 0.999)
    splits: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    width: int | None = None
    flag: bool = False
    inner: Inner = Inner()

    @model_validator(mode="after")
    def _check(self) -> "Sample":
        if self.flag and self.width is None:
            raise InputError("flag needs a width")
        return self


def test_lists_stand_for_tuples_and_whole_numbers_for_numbers():
    sample = Sample(name="a", columns=["x", "y"], betas=[0, 1], splits={"test": ["t"]}, rate=2)
    assert (sample.columns, sample.betas, sample.splits, sample.rate) == (("x", "y"), (0.0, 1.0), {"test": ("t",)}, 2.0)
    assert sample == Sample(name="a", columns=("x", "y"), betas=(0, 1), splits={"test": ("t",)}, rate=2.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "[sample] name is missing; give name = ..."),
        ({"name": 1}, "[sample] name is 1; expected text"),
        ({"count": 2}, "[sample] count is 2; expected 3 or more"),
        ({"count": "3"}, "[sample] count is '3'; expected a whole number"),
        ({"count": 3.0}, "[sample] count is 3.0; expected a whole number"),
        ({"count": True}, "[sample] count is True; expected a whole number"),
        ({"rate": 0}, "[sample] rate is 0; expected a number above 0"),
        ({"rate": float("nan")}, "[sample] rate is nan; expected a finite number"),
        ({"rate": float("inf")}, "[sample] rate is inf; expected a finite number"),
        ({"head": "mpl"}, "[sample] Unknown head 'mpl'. Did you mean 'mlp'? Known: none, mlp, linear"),
        ({"columns": "text"}, "[sample] columns is 'text'; expected a list"),
        ({"columns": [1]}, "[sample] columns.0 is 1; expected text"),
        ({"betas": [0.9]}, "[sample] betas.1 is missing; give betas.1 = ..."),
        ({"flag": 1}, "[sample] flag is 1; expected true or false"),
        ({"flag": True}, "[sample] flag needs a width"),
        ({"heads": "mlp"}, "[sample] unknown key 'heads'. Did you mean 'head'? Known: "),
        ({"inner": {"rate": 1}}, "[sample] [inner] rate is 1; expected a number below 1"),
        ({"inner": 3}, "[sample] inner is 3; expected a table of settings"),
    ],
)
def test_mistakes_are_one_line_whoever_makes_them(values, message):
    values = {"name": "a", **values} if values else {}
    with pytest.raises(InputError) as python:
        Sample(**values)
    with pytest.raises(InputError) as toml:
        parse_settings(Sample, values, file="recipe.toml")
    assert str(python.value).startswith(message)
    assert str(toml.value).startswith(f"recipe.toml: {message}")
    assert "\n" not in str(toml.value)


def test_a_change_is_checked_again():
    sample = Sample(name="a")
    assert sample.replaced(width=4, flag=True).width == 4
    with pytest.raises(InputError, match="flag needs a width"):
        sample.replaced(flag=True)
    with pytest.raises(ValueError, match="frozen"):
        sample.name = "b"


def test_files_that_are_no_toml(tmp_path):
    with pytest.raises(InputError, match=r"^r\.toml: is not TOML: .*; write \[\[task\]\], in double brackets$"):
        parse_toml("[task]\na = 1\n[task]\na = 2", "r.toml")
    with pytest.raises(InputError, match="cannot be read: No such file or directory; give a recipe"):
        read_toml(tmp_path / "none.toml", remedy="give a recipe")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"bad\.toml: is not UTF-8 text"):
        read_toml(tmp_path / "bad.toml")
    (tmp_path / "good.toml").write_text("[data]\nfiles = ['a']")
    assert read_toml(tmp_path / "good.toml") == {"data": {"files": ["a"]}}
    with pytest.raises(InputError, match=r"^x\.toml: \[sample\]: expected a table of settings$"):
        parse_settings(Sample, [1], file="x.toml")


def test_a_format_of_another_version_is_told_which_is_known():
    class Versioned(Settings):
        label: ClassVar[str] = "file.json:"
        format: Literal[1] = 1

    with pytest.raises(InputError, match=r"^file\.json: Unknown format 2\. Known: 1$"):
        Versioned(format=2)
