"""Every call's time-out, as docs/timeouts.md tells it: the page and this table agree, and each row is tried."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from instride import Consumer, RangeConsumer, TopicPartition
from instride import errors as all_errors
from instride.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from instride.observers import Observer

PAGE = Path(__file__).parents[2] / "docs" / "timeouts.md"
TP = TopicPartition("t", 0)
NO_BOUND = "`timeout`; None: no bound"
DEFAULT = "`timeout`, else `default_api_timeout`"
CLOSE = "`timeout` (30)"
FUTURE = "returns at once; its future: `default_api_timeout`"
LOCAL = "local"
ANYWHERE = "local, from any thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """call: with the call's own time-out, or (**{}) without. error: None where it returns."""

    bound: str
    call: Callable[..., Any]
    error: type[KafkaError] | None = None


TABLE: dict[str, Row] = {
    "poll": Row(bound=NO_BOUND, call=lambda c, **t: c.poll(**t)),
    "poll_arrow": Row(bound=NO_BOUND, call=lambda c, **t: c.poll_arrow(**t)),
    "poll_changes": Row(bound=NO_BOUND, call=lambda c, **t: c.poll_changes(**t)),
    "commit": Row(bound=DEFAULT, call=lambda c, **t: c.commit({TP: 1}, **t), error=KafkaTimeoutError),
    "commit_async": Row(bound=FUTURE, call=lambda c: c.commit_async({TP: 1}), error=KafkaTimeoutError),
    "committed": Row(bound=DEFAULT, call=lambda c, **t: c.committed(TP, **t), error=KafkaTimeoutError),
    "position": Row(bound=DEFAULT, call=lambda c, **t: c.position(TP, **t), error=KafkaTimeoutError),
    "beginning_offsets": Row(
        bound=DEFAULT, call=lambda c, **t: c.beginning_offsets([TP], **t), error=KafkaTimeoutError
    ),
    "end_offsets": Row(bound=DEFAULT, call=lambda c, **t: c.end_offsets([TP], **t), error=KafkaTimeoutError),
    "offsets_for_times": Row(
        bound=DEFAULT, call=lambda c, **t: c.offsets_for_times({TP: 1}, **t), error=KafkaTimeoutError
    ),
    "list_topics": Row(bound=DEFAULT, call=lambda c, **t: c.list_topics(**t), error=KafkaTimeoutError),
    "partitions_for": Row(bound=DEFAULT, call=lambda c, **t: c.partitions_for("t", **t), error=KafkaTimeoutError),
    "unsubscribe": Row(bound=DEFAULT, call=lambda c, **t: c.unsubscribe(**t)),
    "close": Row(bound=CLOSE, call=lambda c, **t: c.close(**t)),
    "subscribe": Row(bound=LOCAL, call=lambda c: c.subscribe(["t"]), error=IllegalStateError),
    "assign": Row(bound=LOCAL, call=lambda c: c.assign([TP])),
    "subscription": Row(bound=LOCAL, call=lambda c: c.subscription()),
    "assignment": Row(bound=LOCAL, call=lambda c: c.assignment()),
    "enforce_rebalance": Row(bound=LOCAL, call=lambda c: c.enforce_rebalance(), error=IllegalStateError),
    "group_metadata": Row(bound=LOCAL, call=lambda c: c.group_metadata()),
    "change_settings": Row(bound=LOCAL, call=lambda c: c.change_settings(max_poll_records=7)),
    "observe": Row(bound=LOCAL, call=lambda c: c.observe(Observer()), error=IllegalStateError),
    "seek": Row(bound=LOCAL, call=lambda c: c.seek(TP, 3)),
    "seek_to_beginning": Row(bound=LOCAL, call=lambda c: c.seek_to_beginning(TP)),
    "seek_to_end": Row(bound=LOCAL, call=lambda c: c.seek_to_end()),
    "pause": Row(bound=LOCAL, call=lambda c: c.pause(TP)),
    "resume": Row(bound=LOCAL, call=lambda c: c.resume(TP)),
    "paused": Row(bound=LOCAL, call=lambda c: c.paused()),
    "lag": Row(bound=LOCAL, call=lambda c: c.lag(TP)),
    "to_be_revoked_partitions": Row(bound=LOCAL, call=lambda c: c.to_be_revoked_partitions()),
    "lost_partitions": Row(bound=LOCAL, call=lambda c: c.lost_partitions()),
    "delay_revoke": Row(bound=LOCAL, call=lambda c: c.delay_revoke([])),
    "revoke_deadline": Row(bound=LOCAL, call=lambda c: c.revoke_deadline(TP)),
    "failed_partitions": Row(bound=LOCAL, call=lambda c: c.failed_partitions()),
    "holdings": Row(bound=LOCAL, call=lambda c: c.holdings()),
    "metrics": Row(bound=LOCAL, call=lambda c: c.metrics()),
    "wakeup": Row(bound=ANYWHERE, call=lambda c: c.wakeup()),
}


def told() -> dict[str, tuple[str, str]]:
    """Call -> (bound, what then), as the page's first table has it."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {name: (row[1], row[2]) for row in cells for name in re.findall(r"`(\w+)`", row[0])}


def named(bound: str) -> list[str]:
    return [name for name, row in TABLE.items() if row.bound == bound]


@pytest.fixture
def server() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"127.0.0.1:{silent.getsockname()[1]}"


Build = Callable[..., Any]


@pytest.fixture(params=[Consumer, RangeConsumer])
def build(request: pytest.FixtureRequest, server: str) -> Iterator[Build]:
    """``build(**settings)``: a consumer of one partition, whose time-outs are an hour but for those given."""
    made: list[Any] = []

    def one(**settings: Any) -> Any:
        hour: dict[str, Any] = {"default_api_timeout": 3600.0, "request_timeout": 3600.0}
        made.append(request.param(bootstrap_servers=server, group_id="g", **{**hour, **settings}))
        made[-1].assign([TP])
        return made[-1]

    yield one
    for each in made:
        each.close(timeout=0)


def ends(consumer: Any, name: str, **timeout: float) -> None:
    """It ends as the table says. That it ends at all is the proof: whatever else could end it takes an hour."""
    if not hasattr(consumer, name):
        pytest.skip("a consumer of ranges has no such call")
    row = TABLE[name]
    if row.error is None:
        row.call(consumer, **timeout)
        return
    with pytest.raises(row.error):
        row.call(consumer, **timeout)


@pytest.mark.requirement("surface/timeouts")
def test_the_page_and_the_table_agree() -> None:
    page = told()
    assert {name: bound for name, (bound, _) in page.items()} == {name: row.bound for name, row in TABLE.items()}
    for name, (_, then) in page.items():
        row = TABLE[name]
        waits = row.bound not in (LOCAL, ANYWHERE)
        assert ("KafkaTimeoutError" in then) == (waits and row.error is KafkaTimeoutError), name
        for error in re.findall(r"`(\w+Error)`", then):
            assert hasattr(all_errors, error)


@pytest.mark.requirement("surface/timeouts")
def test_every_call_has_its_row() -> None:
    public = {name for kind in (Consumer, RangeConsumer) for name in dir(kind) if not name.startswith("_")}
    assert public == set(TABLE)


def test_the_default_of_close_is_told() -> None:
    defaults = Consumer.close.__kwdefaults__
    assert defaults is not None
    assert f"`timeout` ({defaults['timeout']:g})" == CLOSE


@pytest.mark.requirement("surface/timeouts")
@pytest.mark.parametrize("name", [*named(NO_BOUND), *named(DEFAULT), *named(CLOSE)])
def test_its_own_timeout_ends_it(build: Build, name: str) -> None:
    ends(build(), name, timeout=0.3)


@pytest.mark.requirement("surface/timeouts")
@pytest.mark.parametrize("name", named(DEFAULT))
def test_without_one_default_api_timeout_ends_it(build: Build, name: str) -> None:
    ends(build(default_api_timeout=0.3), name)


@pytest.mark.requirement("surface/timeouts")
@pytest.mark.parametrize("name", [*named(NO_BOUND), *named(DEFAULT), *named(CLOSE)])
def test_a_timeout_of_zero_does_not_wait(build: Build, name: str) -> None:
    ends(build(), name, timeout=0)


@pytest.mark.parametrize("name", named(FUTURE))
def test_a_future_ends_with_default_api_timeout(build: Build, name: str) -> None:
    row = TABLE[name]
    future = row.call(build(default_api_timeout=0.3))
    assert isinstance(future.exception(timeout=120), row.error or Exception)


@pytest.mark.requirement("surface/timeouts")
@pytest.mark.parametrize("name", [*named(LOCAL), *named(ANYWHERE)])
def test_what_is_local_never_waits(build: Build, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = build()

    def waits(call: object) -> None:
        raise AssertionError(f"{name} waits")

    with monkeypatch.context() as patch:
        patch.setattr(consumer._driver, "run", waits)
        patch.setattr(consumer._driver._mailbox, "wait", waits)
        ends(consumer, name)
