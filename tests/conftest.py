"""The order of the tests: the fast ones first, then those with a real Kafka, then those with a real Spark.

So a plain mistake is reported within seconds, and the tests that share a kind of server run together.
"""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by what a test needs; the sort is stable, so within a kind the order of the files stays."""
    items.sort(key=_cost)


def _cost(item: pytest.Item) -> int:
    if item.get_closest_marker("spark"):
        return 2
    return 1 if item.get_closest_marker("kafka") else 0
