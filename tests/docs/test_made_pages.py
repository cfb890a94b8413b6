"""The pages that `make docs` writes are what the code and the tests' markers say."""

from __future__ import annotations

import pytest

import api_reference.__main__ as api_reference
import conformance.__main__ as conformance


def test_the_page_of_requirements_is_up_to_date() -> None:
    assert conformance.main(["--check"]) == 0, "run make docs"


@pytest.mark.requirement("surface/api-reference")
def test_the_api_reference_is_up_to_date() -> None:
    assert api_reference.main(["--check"]) == 0, "run make docs"
