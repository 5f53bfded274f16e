"""The API does what its description says: schemathesis sends requests made from openapi.json to a running viewer.

API_EXAMPLES=500 tries more of them than the default.
"""

import io
import os

import hypothesis
import numpy as np
import pytest
import schemathesis
from hypothesis import strategies as st
from PIL import Image
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from histolumen.view.limits import Limits

EXAMPLES = int(os.environ.get("API_EXAMPLES", "12"))
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
WIDE = Limits(
    requests_per_second=10**6, requests_of_client_per_second=10**6, connections=1000, connections_of_client=1000
)


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


PICTURE = picture()


@pytest.fixture
def served(make_app, serving):
    """The description of a running viewer, and the identifiers of its images and its slide."""
    app = make_app(limits=WIDE)
    with serving(app) as address:
        known = [item.id for item in app.state.viewer.library.all()]
        yield schemathesis.openapi.from_url(f"{address}/openapi.json"), known


def test_every_answer_is_as_described(served):
    schema, known = served
    for path, methods in schema.raw_schema["paths"].items():
        for method in methods:
            check_route(schema[path][method], known)


def check_route(route, known):
    seen = set()
    modes = list(GenerationMode) if route.definition.raw.get("parameters") else [GenerationMode.POSITIVE]

    @hypothesis.settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=st.one_of([route.as_strategy(mode) for mode in modes]), data=st.data())
    def check(case, data):
        point_at_known_items(case, data, known)
        response = case.call(timeout=60)
        seen.add(response.status_code)
        assert response.status_code < 500 or response.status_code == 503
        case.validate_response(response, checks=CHECKS)

    check()
    assert seen & {200, 201, 202, 204, 404, 409, 422}


def point_at_known_items(case, data, known):
    """Generated identifiers are unknown to the viewer: most are replaced, so that requests get further than 404."""
    parameters = case.path_parameters or {}
    if "item_id" in parameters and data.draw(st.integers(0, 3)):
        parameters["item_id"] = data.draw(st.sampled_from(known))
        parameters |= {"run_id": "0"} if "run_id" in parameters else {}
        if "level" in parameters and data.draw(st.booleans()):
            parameters |= {name: data.draw(st.integers(-1, 12)) for name in ("level", "column", "row")}
    if isinstance(case.body, bytes) and data.draw(st.booleans()):
        case.body = PICTURE
