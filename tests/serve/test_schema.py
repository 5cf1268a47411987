"""The OpenAPI schema: requests made from it, right and wrong, get no answer that it does not describe.

They are sent to a server with a key, a model with a task, and an index, so that every address can answer with 200.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from support.serving import KEY, behind_a_key, with_heads, with_index

HEADERS = {"Authorization": f"Bearer {KEY}"}
PATHS = [
    *("POST /v1/embeddings", "POST /v1/similarity", "POST /v1/predict", "POST /v1/search"),
    *("GET /v1/models", "GET /v1/layers", "GET /livez", "GET /readyz", "GET /metrics"),
]
TAKE_VALUES = [label for label in PATHS if label.startswith("POST") or label == "GET /v1/layers"]
CASES = [(label, GenerationMode.POSITIVE) for label in PATHS] + [
    (label, GenerationMode.NEGATIVE) for label in TAKE_VALUES
]


@pytest.fixture(scope="module")
def operations(tiny_layers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with behind_a_key(with_index(with_heads(tiny_layers, folder, ("mood",))), folder) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=HEADERS)
        yield {one.ok().label: one.ok() for one in schema.get_all_operations()}


def test_every_address_is_in_the_schema(operations):
    assert list(operations) == PATHS


def statuses_of(operation, mode, examples):
    """Send examples and check each answer against the schema."""
    statuses = []

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        # the text of a mix is no matter of a schema: one that cannot be read is refused
        answer = case.call_and_validate(headers=HEADERS, excluded_checks=[positive_data_acceptance])
        statuses.append(answer.status_code)

    check()
    return statuses


@pytest.mark.parametrize(("label", "mode"), CASES)
def test_every_answer_is_described(operations, label, mode):
    statuses = statuses_of(operations[label], mode, 12)
    if mode == GenerationMode.POSITIVE:
        assert 200 in statuses


@pytest.mark.slow
@pytest.mark.parametrize(("label", "mode"), [case for case in CASES if case[0] in TAKE_VALUES])
def test_every_answer_to_many_requests_is_described(operations, label, mode):
    statuses_of(operations[label], mode, 500)
