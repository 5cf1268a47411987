"""The OpenAPI schema: requests made from it, right and wrong, get no answer that it does not describe."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

EXAMPLES = settings(
    max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
PATHS = [
    *("POST /v1/embeddings", "POST /v1/similarity", "POST /v1/predict", "POST /v1/search"),
    *("GET /v1/models", "GET /v1/layers", "GET /livez", "GET /readyz", "GET /metrics"),
]


@pytest.fixture(scope="module")
def operations(server):
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    return {one.ok().label: one.ok() for one in schema.get_all_operations()}


def test_every_address_is_in_the_schema(operations):
    assert list(operations) == PATHS


WRONG = [label for label in PATHS if label.startswith("POST")]  # the others take nothing that could be wrong


@pytest.mark.parametrize(
    ("label", "mode"),
    [(label, GenerationMode.POSITIVE) for label in PATHS] + [(label, GenerationMode.NEGATIVE) for label in WRONG],
)
def test_every_answer_is_described(operations, label, mode):
    @EXAMPLES
    @given(case=operations[label].as_strategy(generation_mode=mode))
    def check(case):
        # the text of a mix is no matter of a schema: one that cannot be read is refused
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()
