"""A leader learns the replicas' racks from the metadata, and deals out anew when they change (KIP-881)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from network_script import NetworkScript, tp

from instride._core.assignors.assignor import ClusterView
from instride._core.assignors.range import RangeAssignor
from instride._core.events import PartitionsAssigned, RevocationRequested
from instride._wire import api


class Racked(NetworkScript):
    """Two brokers, and of each partition one replica on one of them."""

    racks: tuple[str | None, str | None] = ("x", "y")
    away: tuple[int, ...] = ()

    def metadata(self, request: api.Metadata) -> api.MetadataResponse:
        response = super().metadata(request)
        brokers = tuple(
            api.Broker(node_id=n, host="b", port=n, rack=self.racks[n - 1]) for n in (1, 2) if n not in self.away
        )
        topics = tuple(
            replace(
                topic,
                partitions=tuple(replace(each, replicas=(1 + each.partition % 2, 9)) for each in topic.partitions),
            )
            for topic in response.topics
        )
        return replace(response, brokers=brokers, topics=topics)


class Watching(RangeAssignor):
    def __init__(self) -> None:
        self.views: list[ClusterView] = []

    def assign(self, cluster, members):  # type: ignore[no-untyped-def]
        self.views.append(cluster)
        return super().assign(cluster, members)


def leading(**settings: object) -> tuple[Racked, Watching]:
    watching = Watching()
    script = Racked(assignors=[watching], metadata_max_age=5.0, **settings)  # type: ignore[arg-type]
    script.subscribe()
    script.join(1, leader=True)
    script.sync(0, 1, 2, 3)
    return script, watching


@pytest.mark.requirement("surface/racks")
def test_the_assignor_sees_the_racks_and_the_members_own() -> None:
    _, watching = leading(client_rack="x")
    assert watching.views[0].racks == {tp(0): ("x",), tp(1): ("y",), tp(2): ("x",), tp(3): ("y",)}
    assert watching.views[0].partitions == {"t": 4}


def test_replicas_that_move_to_other_racks_start_a_rebalance() -> None:
    script, _ = leading(client_rack="x")
    script.pass_time(5.5)
    assert script.take(RevocationRequested) == [], "nothing has changed"
    script.racks = ("x", None)
    script.pass_time(5.5)
    assert len(script.take(RevocationRequested)) == 1


@pytest.mark.parametrize("assignors", [["cooperative-sticky"], ["range"]])
def test_a_broker_that_is_away_for_a_while_starts_none(assignors: list[str]) -> None:
    """Each restart of a broker was two rebalances of each group (KAFKA-20778)."""
    script = Racked(assignors=assignors, metadata_max_age=5.0, client_rack="x")
    script.subscribe()
    script.join(1, leader=True)
    script.sync(0, 1, 2, 3)
    script.do(PartitionsAssigned(generation=1))
    for away in ((2,), ()):
        script.away = away
        script.pass_time(6.0)
        assert "JoinGroup" not in script.waits()
    assert script.take(RevocationRequested) == []
    script.racks = ("x", None)
    script.pass_time(6.0)
    assert "JoinGroup" in script.waits() or script.take(RevocationRequested), "it is there, and has no rack now"


@pytest.mark.parametrize("code", [3, 29])
def test_racks_of_a_topic_that_is_missing_for_a_moment_stay(code: int) -> None:
    script, _ = leading(client_rack="x")
    script.topic_errors, script.away = {"t": code}, (2,)
    before = script.metadata_responses
    while script.metadata_responses == before:
        script.pass_time(0.25)
    script.topic_errors = {}
    script.pass_time(6.0)
    assert script.take(RevocationRequested) == []


def test_where_no_member_says_its_rack_nobody_looks() -> None:
    script, watching = leading()
    assert watching.views[0].racks == {}
    script.racks = ("y", "x")
    script.pass_time(5.5)
    assert script.take(RevocationRequested) == []


def test_the_rack_is_in_what_a_join_says() -> None:
    script = Racked(client_rack="x")
    script.subscribe()
    assert script.joining_with().rack == "x"
