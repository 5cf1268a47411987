"""Published schemas: one for each command with --json, sound and strict; `call_json` validates every output by them."""

import jsonschema_rs
import pytest

from layerwise.cli.schemas import COMMANDS, schema_of
from support.commands import call, call_json, check_schema, refused, strict_json, validator
from support.help import all_commands


def test_every_command_with_json_has_a_schema_and_no_other():
    with_json = {
        name for name, command in all_commands().items() if any("--json" in option.opts for option in command.params)
    }
    assert with_json == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_schema_is_printed_and_is_one(command):
    printed = strict_json(call("schema", *command.split()))
    assert printed == schema_of(command)
    jsonschema_rs.meta.validate(printed)
    assert printed["title"] == f"layerwise {command} --json"


def test_names_are_listed_and_a_wrong_one_is_explained(capsys, monkeypatch):
    assert call("schema").splitlines() == list(COMMANDS)
    assert "Did you mean 'search'?" in refused(capsys, monkeypatch, "schema", "serach")


def test_a_field_that_appears_vanishes_or_changes_is_noticed(own_cache):
    facts = call_json("cache")
    for damaged in (
        facts | {"new": 1},
        {name: value for name, value in facts.items() if name != "bytes"},
        facts | {"bytes": "many"},
        facts | {"bytes": -1},
    ):
        with pytest.raises(jsonschema_rs.ValidationError):
            check_schema(damaged, "cache")


def test_outputs_of_other_commands_are_not_taken(tiny_bert):
    info = call_json("info", tiny_bert)
    taken = [name for name in COMMANDS if validator(name).is_valid(info)]
    assert taken == ["info", "recipes"], "a recipe has any settings"
