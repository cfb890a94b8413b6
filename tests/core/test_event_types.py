"""The two queues' events: a type for each, immutable, with a deadline and a response where one is awaited."""

from __future__ import annotations

import ast
import dataclasses
import typing
from pathlib import Path

import pytest

import instride
from instride._core import events
from instride._core.events import ApplicationEvent, BackgroundEvent

EVENTS = [*typing.get_args(ApplicationEvent), *typing.get_args(BackgroundEvent)]
PACKAGE = Path(instride.__file__).parent


@pytest.mark.requirement("threading/22")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_every_event_is_a_type_of_its_own_that_cannot_change(event: type) -> None:
    assert dataclasses.is_dataclass(event)
    assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__slots__" in vars(event)


@pytest.mark.requirement("threading/22")
@pytest.mark.requirement("threading/4")
def test_what_awaits_a_response_has_a_deadline() -> None:
    fields = {event: {field.name for field in dataclasses.fields(event)} for event in typing.get_args(ApplicationEvent)}
    asking = {event for event, names in fields.items() if "call" in names}
    assert asking >= {events.Commit, events.FetchCommitted, events.FetchOffsets, events.Close, events.Unsubscribe}
    assert [event for event in asking if "deadline" not in fields[event]] == []
    assert "call" in {field.name for field in dataclasses.fields(events.CallCompleted)}


@pytest.mark.requirement("threading/6")
def test_no_event_goes_both_ways() -> None:
    down, up = set(typing.get_args(ApplicationEvent)), set(typing.get_args(BackgroundEvent))
    assert down & up == set()
    assert down | up <= {getattr(events, name) for name in events.__all__}


# What the API consists of: the application machine, and every module of the package's root.
API = sorted([*(PACKAGE / "_core" / "application").glob("*.py"), *PACKAGE.glob("*.py")])
BELOW = ("instride._core.network", "instride._net", "instride._wire.connection", "instride._wire.message_codecs")
# The facade knows what carries its events (the driver), and the clock that it passes on. `OAuthClientCredentials` is a
# public class that lives beside the only sockets.
CARRIERS = {
    "_consumer_base.py": {"instride._net.driver", "instride._net.async_driver", "instride._net.clock"},
    "aio.py": {"instride._net.async_driver", "instride._net.clock"},
    "__init__.py": {"instride._net.oauth"},
}


@pytest.mark.requirement("threading/5")
@pytest.mark.parametrize("source", API, ids=lambda source: source.name)
def test_the_api_knows_no_coordinator_fetcher_or_connection(source: Path) -> None:
    """It posts events. `make check` holds the same as an import contract."""
    tree = ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    named = {node.module for node in tree if isinstance(node, ast.ImportFrom) and node.module}
    known = CARRIERS.get(source.name, set()) if source.parent == PACKAGE else set()
    assert {module for module in named if module.startswith(BELOW)} <= known


@pytest.mark.requirement("threading/5")
def test_the_facades_verbs_are_among_the_sources() -> None:
    """The test above once read a file that the verbs had left."""
    assert "def commit_async" in (PACKAGE / "_consumer_base.py").read_text(encoding="utf-8")
    assert PACKAGE / "_consumer_base.py" in API
