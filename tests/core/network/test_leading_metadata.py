"""What a leader makes of metadata that is wrong for a moment, or that it may not see: the group's partitions stay."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.events import ErrorRaised, Lost, PartitionsAssigned, Polled, RevocationRequested
from instride._wire import api
from instride._wire.consumer_protocol import Subscription, read_assignment, write_subscription
from instride.errors import ErrorCode, TransportError, UnknownTopicOrPartitionError
from step_counter import steps

UNKNOWN, LEADER_NOT_AVAILABLE, DENIED = 3, 5, 29
OLD, NEW = UUID(int=1), UUID(int=2)


class Leading(NetworkScript):
    """A leader of two members. The other one has `others_topics` and lists `others_owned`."""

    others_topics: tuple[str, ...] = ("t",)
    others_owned: tuple[tuple[str, int], ...] = ()

    def lead(self, generation: int) -> dict[str, list[str]]:
        """A whole round; what the other member is given, and we are."""
        self.join_as_leader(generation)
        return self.sync_as_leader(generation)

    def join_as_leader(self, generation: int) -> None:
        mine = self.requested(api.JoinGroup).protocols[0]
        owned = tuple(tp(number, topic) for topic, number in self.others_owned)
        theirs = Subscription(topics=self.others_topics, owned=owned, generation=generation - 1)
        members = (
            api.GroupMember(member_id="me", metadata=mine.metadata),
            api.GroupMember(member_id="other", metadata=write_subscription(theirs)),
        )
        self.response(
            api.JoinGroup,
            api.JoinGroupResponse(
                generation=generation, protocol=mine.name, leader="me", member_id="me", members=members
            ),
        )

    def sync_as_leader(self, generation: int) -> dict[str, list[str]]:
        made = self.requested(api.SyncGroup).assignments
        self.response(api.SyncGroup, api.SyncGroupResponse(assignment=made["me"]))
        self.do(PartitionsAssigned(generation=generation))
        return {member: list(map(str, read_assignment(part).partitions)) for member, part in made.items()}

    def goes_on(self, seconds: float) -> None:
        """The application polls, and heartbeats are accepted."""
        end = self.now + seconds
        while self.now < end:
            self.do(Polled(at=self.now))
            self.pass_time(0.25)
            if "Heartbeat" in self.waits():
                self.response(api.Heartbeat, api.HeartbeatResponse())

    def next_metadata(self) -> None:
        """The machine hears once what the metadata says now."""
        before = self.metadata_responses
        while self.metadata_responses == before:
            self.goes_on(0.25)
        assert self.metadata_responses == before + 1

    def errors(self) -> list[Exception]:
        return [each.error for each in self.take(ErrorRaised)]


def leading(**settings: object) -> Leading:
    script = Leading(metadata_max_age=10.0, **settings)  # type: ignore[arg-type]
    script.topic_ids = {"t": OLD}
    script.subscribe()
    made = script.lead(1)
    script.others_owned = (("t", 1), ("t", 3))
    assert made == {"me": ["t-0", "t-2"], "other": ["t-1", "t-3"]}
    return script


def has_error(code: int) -> Callable[[NetworkScript], None]:
    return lambda script: script.topic_errors.update({"t": code})


def has_fewer(script: NetworkScript) -> None:
    script.topics["t"] = 2


def has_fewer_without_id(script: NetworkScript) -> None:
    script.topics["t"] = 2
    script.topic_ids.clear()


BLIPS = [has_error(UNKNOWN), has_error(DENIED), has_error(LEADER_NOT_AVAILABLE), has_fewer, has_fewer_without_id]
NAMES = ["unknown", "denied", "no leader", "fewer", "fewer, no id"]


def all_is_right(script: NetworkScript) -> None:
    script.topic_errors.clear()
    script.topics["t"], script.topic_ids = 4, {"t": OLD}


@pytest.mark.parametrize("blip", BLIPS, ids=NAMES)
@pytest.mark.parametrize("assignors", [["cooperative-sticky"], ["range"]])
def test_one_wrong_response_takes_nothing_from_the_group(
    blip: Callable[[NetworkScript], None], assignors: list[str]
) -> None:
    """A broker that has just started, or is behind, says it: it was two rebalances, and all that was read again."""
    script = leading() if assignors == ["cooperative-sticky"] else Leading(assignors=assignors, metadata_max_age=10.0)
    if assignors == ["range"]:
        script.topic_ids = {"t": OLD}
        script.subscribe()
        script.lead(1)
    blip(script)
    script.next_metadata()
    all_is_right(script)
    script.goes_on(30.0)
    assert "JoinGroup" not in script.waits()
    assert (script.take(RevocationRequested), script.take(Lost)) == ([], [])


def test_a_wrong_response_is_soon_asked_about() -> None:
    script = leading()
    script.topics["t"], script.topic_ids = 2, {}
    script.next_metadata()
    since = script.now
    script.next_metadata()
    assert script.now <= since + script.config.retry_backoff_max


@pytest.mark.requirement("surface/deleted-topics")
@pytest.mark.parametrize("gone", [has_error(UNKNOWN), has_error(DENIED), has_fewer_without_id])
def test_what_the_metadata_say_for_five_seconds_is_believed(gone: Callable[[NetworkScript], None]) -> None:
    script = leading()
    gone(script)
    script.next_metadata()
    script.goes_on(4.5)
    assert "JoinGroup" not in script.waits()
    script.goes_on(2.5)
    assert script.requested(api.JoinGroup).reason == "the partitions of the group's topics changed"
    left = ["t-0", "t-1"] if gone is has_fewer_without_id else []
    made = script.lead(2)
    assert sorted(made["me"] + made["other"]) == left


def test_while_no_broker_responds_the_last_that_was_known_counts() -> None:
    script = leading()
    has_error(UNKNOWN)(script)
    script.next_metadata()
    script.hold_metadata = True
    script.goes_on(20.0)
    assert "JoinGroup" not in script.waits(), "it was said once"
    script.hold_metadata = False
    script.response(api.Metadata, TransportError("gone"))
    script.goes_on(2.0)
    script.requested(api.JoinGroup)


def test_a_count_that_shrank_under_the_same_id_is_never_believed() -> None:
    """Kafka removes no partition of a topic: it is a broker that is behind."""
    script = leading()
    script.topics["t"] = 2
    script.goes_on(60.0)
    assert "JoinGroup" not in script.waits()
    assert script.errors() == []


def test_a_topic_that_was_made_again_with_fewer_partitions_is_another_one() -> None:
    script = leading()
    script.topics["t"], script.topic_ids = 2, {"t": NEW}
    script.next_metadata()
    made = script.lead(2)
    assert sorted(made["me"] + made["other"]) == ["t-0", "t-1"]


def test_a_topic_that_is_missing_and_made_again_is_seen_at_once() -> None:
    script = leading()
    has_error(UNKNOWN)(script)
    script.next_metadata()
    script.topic_errors.clear()
    script.topics["t"], script.topic_ids = 6, {"t": NEW}
    script.next_metadata()
    made = script.lead(2)
    assert sorted(made["me"] + made["other"]) == [f"t-{number}" for number in range(6)]


# --- a leader that has never seen the topic ---------------------------------------------------------------------


def starting(*owned: tuple[str, int]) -> Leading:
    """It leads for the first time; the broker that it asks does not know topic u, which the other member reads."""
    script = Leading(topics={"t": 2, "u": 2})
    script.others_topics, script.others_owned = ("u",), owned
    script.topic_errors = {"u": UNKNOWN}
    script.subscribe()
    script.join_as_leader(1)
    return script


def test_partitions_that_a_member_owns_are_not_taken_by_one_response() -> None:
    script = starting(("u", 0), ("u", 1))
    script.goes_on(1.0)
    assert "SyncGroup" not in script.waits(), "they exist: somebody owns them"
    script.topic_errors.clear()
    script.goes_on(1.5)
    assert script.sync_as_leader(1) == {"me": ["t-0", "t-1"], "other": ["u-0", "u-1"]}


@pytest.mark.parametrize("responds", [True, False])
def test_a_group_waits_for_a_topic_that_is_missing_for_five_seconds_at_most(responds: bool) -> None:
    script = starting(("u", 0), ("u", 1))
    script.hold_metadata = not responds
    script.goes_on(4.5)
    assert "SyncGroup" not in script.waits()
    script.goes_on(2.0)
    assert script.sync_as_leader(1) == {"me": ["t-0", "t-1"], "other": []}


def test_what_nobody_owns_is_not_waited_for() -> None:
    assert starting().sync_as_leader(1) == {"me": ["t-0", "t-1"], "other": []}


def test_what_the_leader_may_not_describe_is_not_waited_for() -> None:
    """It is certain at once: no later response would have it."""
    script = Leading(topics={"t": 2, "u": 2})
    script.others_topics, script.others_owned = ("u",), (("u", 0),)
    script.topic_errors = {"u": DENIED}
    script.subscribe()
    assert script.lead(1) == {"me": ["t-0", "t-1"], "other": []}


def test_a_group_waits_once_however_many_syncs_are_refused() -> None:
    """Each member of a rolling deploy refuses a Sync: the group had no assignment until the last had come."""
    script = starting(("u", 0), ("u", 1))
    script.goes_on(6.0)
    for generation in range(2, 5):
        script.response(api.SyncGroup, api.SyncGroupResponse(error=ErrorCode.REBALANCE_IN_PROGRESS))
        script.goes_on(2.5)  # the slowest member joins at its next heartbeat
        script.join_as_leader(generation)
        script.goes_on(0.25)
        assert "SyncGroup" in script.waits()
    assert script.sync_as_leader(4) == {"me": ["t-0", "t-1"], "other": []}


def waiting_turn(many: int) -> int:
    """The steps of one turn of a leader that waits for one of so many topics that are owned."""
    names = [f"u{number}" for number in range(many)]
    script = Leading(topics={"t": 2} | dict.fromkeys(names[1:], 1))
    script.others_topics, script.others_owned = tuple(names), tuple((name, 0) for name in names)
    script.subscribe()
    script.join_as_leader(1)
    script.hold_metadata = True
    script.goes_on(0.5)
    assert "SyncGroup" not in script.waits()
    return steps(lambda: script.do(Polled(at=script.now)))


def test_a_turn_of_a_leader_that_waits_costs_the_same_for_any_group() -> None:
    assert waiting_turn(400) <= waiting_turn(10) + 50


# --- a topic that the leader may not see ------------------------------------------------------------------------


def starved(code: int) -> Leading:
    script = Leading(topics={"t": 2, "u": 2}, request_timeout=900.0)  # fetches have no responses
    script.others_topics = ("u",)
    script.topic_errors = {"u": code}
    script.subscribe()
    assert script.lead(1) == {"me": ["t-0", "t-1"], "other": []}
    return script


def warnings(script: NetworkScript) -> list[str]:
    return [line for line, level in zip(script.logs, script.levels, strict=True) if level == logging.WARNING]


@pytest.mark.parametrize("code", [DENIED, UNKNOWN, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_a_member_that_its_leader_starves_is_told_of_once(code: int) -> None:
    script = starved(code)
    script.goes_on(600.0)
    (line,) = [each for each in warnings(script) if "'u'" in each]
    assert f"error code {code}" in line
    assert ("Describe" in line) == (code in (DENIED, UNKNOWN))
    assert script.errors() == [], "it concerns no partition of this consumer"


def test_a_topic_that_a_leader_may_not_see_is_told_of_at_once() -> None:
    script = starved(DENIED)
    assert any("'u'" in line for line in warnings(script))


def test_another_error_of_the_topic_is_told_as_well() -> None:
    script = starved(UNKNOWN)
    script.goes_on(10.0)
    script.topic_errors = {"u": DENIED}
    script.goes_on(90.0)
    assert len([line for line in warnings(script) if "'u'" in line]) == 2


def test_what_a_leader_may_not_see_is_requested_ever_more_seldom() -> None:
    """It was each second, for ever."""
    script = starved(DENIED)
    before = script.metadata_responses
    script.goes_on(600.0)
    assert script.metadata_responses - before <= 30
    script.topic_errors.clear()
    since = script.now
    while "JoinGroup" not in script.waits():
        script.goes_on(1.0)
    assert script.now <= since + 75.0, "a right that is granted is noticed within about a minute"
    assert script.lead(2)["other"] == ["u-0", "u-1"]


def missing_for_long(script: Leading) -> Leading:
    """The other member reads u, which is nowhere."""
    script.others_topics = ("u",)
    script.subscribe()
    assert script.lead(1) == {"me": ["t-0", "t-1"], "other": []}
    script.goes_on(200.0)
    return script


def rebalance(script: Leading) -> None:
    while "Heartbeat" not in script.waits():
        script.do(Polled(at=script.now))
        script.pass_time(0.25)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=ErrorCode.REBALANCE_IN_PROGRESS))


def test_a_rebalance_sees_at_once_a_topic_that_was_missing() -> None:
    """Who reads it may have joined since it is there; it was assigned up to a minute later."""
    script = missing_for_long(Leading(topics={"t": 2}, request_timeout=900.0))
    before = script.metadata_responses
    script.topics["u"] = 2
    rebalance(script)
    assert script.lead(2) == {"me": ["t-0", "t-1"], "other": ["u-0", "u-1"]}
    assert script.metadata_responses == before + 1


def test_a_rebalance_goes_on_where_no_broker_says_what_became_of_a_topic() -> None:
    script = missing_for_long(Leading(topics={"t": 2}, request_timeout=900.0))
    script.hold_metadata = True
    rebalance(script)
    script.join_as_leader(2)
    assert "SyncGroup" not in script.waits()
    script.goes_on(2.25)
    assert script.sync_as_leader(2) == {"me": ["t-0", "t-1"], "other": []}


def test_a_topic_that_is_newly_missing_is_requested_as_often_as_the_first_was() -> None:
    script = missing_for_long(Leading(topics={"t": 2}, request_timeout=900.0))
    script.others_topics = ("u", "v")
    rebalance(script)
    script.lead(2)
    script.goes_on(7.0)
    script.topics["v"] = 2
    since = script.now
    while "JoinGroup" not in script.waits():
        script.goes_on(0.25)
    assert script.now <= since + 5.0


def test_a_topic_of_a_fellow_that_is_subscribed_to_is_looked_at_anew() -> None:
    """It was told as missing at once, though it was there, and not read for up to a minute."""
    script = missing_for_long(Leading(topics={"t": 2}, request_timeout=900.0))
    script.topics["u"] = 2
    script.subscribe("t", "u")
    made = script.lead(2)
    assert sorted(made["me"] + made["other"]) == ["t-0", "t-1", "u-0", "u-1"]
    assert script.errors() == []


def test_that_a_fellow_missed_a_topic_says_nothing_of_a_new_subscription() -> None:
    script = missing_for_long(Leading(topics={"t": 2}, request_timeout=900.0))
    script.subscribe("t", "u")
    script.goes_on(1.5)
    assert script.errors() == [], "the grace begins with the subscription"
    script.goes_on(1.0)
    assert [type(error) for error in script.errors()] == [UnknownTopicOrPartitionError]


def test_a_topic_of_its_own_is_the_errors_affair_and_requested_each_second() -> None:
    script = Leading(topics={"t": 2})
    script.others_topics = ("t",)
    script.subscribe("t", "mine")
    script.lead(1)
    before = script.metadata_responses
    script.goes_on(60.0)
    assert script.metadata_responses - before >= 40
    assert [line for line in warnings(script) if "'mine'" in line] == []
    assert script.errors() != []
