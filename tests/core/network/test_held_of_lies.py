"""What brokers say again and again, each time otherwise, leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from network_script import NetworkScript, tp

from held_bytes import bytes_of
from instride._core.events import Assign, Polled
from instride._wire import api
from instride.errors import ErrorCode

FEW, MANY = 30, 130


class Restless(NetworkScript):
    """Each response about the cluster names other brokers, as leaders too, and topics that were not requested."""

    said = 0

    def metadata(self, request: api.Metadata) -> api.MetadataResponse:
        self.said += 1
        self.nodes = tuple(range(self.said * 10, self.said * 10 + 5))
        self.leaders = {number: self.nodes[number] for number in range(4)}
        found = super().metadata(request)
        others = [replace(each, name=f"u-{self.said}-{n}") for each in found.topics for n in range(20)]
        return replace(found, topics=(*found.topics, *others))


class Wandering(NetworkScript):
    """The coordinator is another node each time, and denies it."""

    def _respond_at_once(self, action: object) -> None:
        self.coordinator += 1
        super()._respond_at_once(action)  # type: ignore[arg-type]


def play(script: NetworkScript, rounds: int) -> NetworkScript:
    """Each request that tells where a partition or the group is gets a refusal, and the cluster is looked up again."""
    for _ in range(rounds):
        for each in list(script.waiting):
            found = refusal(each.request)
            if found is not None:
                script.waiting.remove(each)
                script.machine.response_received(each.request_id, found, script.now)
        script.pass_time(2.0)
        script.do(Polled(at=script.now))
        for kept in (script.delivered, script.logs, script.levels, script.attempts):
            kept.clear()
    return script


def refusal(request: object) -> api.Response | None:
    match request:
        case api.ListOffsets():
            return api.ListOffsetsResponse(offsets=dict.fromkeys(request.timestamps, api.ListedOffset(offset=7)))
        case api.Fetch():
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            known = request.known or [(each.topic, each.partition) for each in request.partitions]
            return api.FetchResponse(partitions=dict.fromkeys(known, api.FetchedPartition(error=code)))
        case api.JoinGroup():
            return api.JoinGroupResponse(error=ErrorCode.NOT_COORDINATOR)
        case _:
            return None


def leaders(rounds: int) -> NetworkScript:
    script = Restless(group_id=None)
    script.do(Assign(partitions={tp(number): number + 1 for number in range(4)}))
    play(script, rounds)
    assert script.said > rounds / 2
    return script


def coordinators(rounds: int) -> NetworkScript:
    script = Wandering(metadata_max_age=10.0)
    script.subscribe()
    play(script, rounds)
    assert script.coordinator > rounds / 2
    return script


@pytest.mark.parametrize("lies", [leaders, coordinators])
def test_what_a_broker_makes_up_is_forgotten(lies: Callable[[int], NetworkScript]) -> None:
    lies(1)  # what is made once, as regular expressions are
    few, many = bytes_of("network", lambda: lies(FEW))[1], bytes_of("network", lambda: lies(MANY))[1]
    assert many - few < 64 * (MANY - FEW), f"{(many - few) / (MANY - FEW):.0f} bytes stay of each round"
