"""How often a member heartbeats while a hand-over is pending, and how releases are gathered (rule 19)."""

from __future__ import annotations

import itertools

import pytest
from network_script import NOTHING_PENDING, NetworkScript, tp

from instride._core.network.actions import Action, Transmit
from instride._wire import api
from instride._wire.consumer_protocol import Subscription, read_assignment, write_subscription
from instride._wire.group_notice import GroupNotice, read_notice

PENDING = GroupNotice(members=3, place=0, withheld=2)
REBALANCE_IN_PROGRESS = 27


class Beating(NetworkScript):
    """Heartbeats get their responses at once, with `error` and `throttle`; `beats` has when they were sent."""

    error = 0
    throttle = 0.0

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.beats: list[float] = []

    def _act(self, action: Action) -> None:
        super()._act(action)
        if isinstance(action, Transmit) and isinstance(action.request, api.Heartbeat):
            self.beats.append(self.now)
            response = api.HeartbeatResponse(error=self.error, throttle_time=self.throttle)
            self.response(api.Heartbeat, response, settle=False)

    def member(self, notice: GroupNotice | None, *partitions: int) -> float:
        """Of generation 1; the time of its sync."""
        self.subscribe()
        self.rebalance(1, *partitions, notice=notice)
        return self.now

    def waits_between(self, start: float, end: float) -> list[float]:
        """Seconds between the heartbeats of this span."""
        beats = [at for at in self.beats if start <= at <= end]
        return [round(after - before, 3) for before, after in itertools.pairwise(beats)]


@pytest.mark.rule("19")
def test_with_nothing_pending_the_interval_is_the_users() -> None:
    script = Beating()
    start = script.member(NOTHING_PENDING, 0)
    script.pass_time(10.0)
    assert script.beats == [start + 3.0, start + 6.0, start + 9.0]


@pytest.mark.rule("19")
def test_while_a_hand_over_is_pending_heartbeats_are_fast_and_then_decay() -> None:
    script = Beating()
    start = script.member(PENDING, 0)
    script.pass_time(60.0)
    assert script.beats[0] == start + 0.25
    assert set(script.waits_between(start, start + 30.0)) == {0.25}
    assert script.waits_between(start + 30.0, start + 60.0)[:5] == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.rule("19")
def test_a_shorter_interval_of_the_users_is_kept() -> None:
    script = Beating(heartbeat_interval=0.1)
    start = script.member(PENDING, 0)
    script.pass_time(5.0)
    assert script.beats[0] == pytest.approx(start + 0.1)
    assert set(script.waits_between(start, start + 5.0)) == {0.1}


@pytest.mark.rule("19")
def test_in_a_large_group_each_member_has_its_own_place_in_a_longer_interval() -> None:
    script = Beating()
    start = script.member(GroupNotice(members=900, place=450, withheld=1), 0)
    script.pass_time(10.0)
    assert script.beats[0] == start + 0.25 + 1.0
    assert set(script.waits_between(start, start + 10.0)) == {2.0}


@pytest.mark.rule("19")
def test_a_large_group_does_not_beat_in_one_moment_after_a_join_either() -> None:
    script = Beating()
    script.member(GroupNotice(members=900, place=450, withheld=0), 0)
    script.error = REBALANCE_IN_PROGRESS
    script.pass_time(4.0)
    script.join(2)
    script.error, joined = 0, script.now
    script.pass_time(5.0)
    assert script.beats[-1] == joined + 4.0, "the sync has no response yet"


@pytest.mark.rule("19")
def test_a_rebalance_that_is_under_way_is_not_requested_again_and_again() -> None:
    script = Beating()
    start = script.member(PENDING, 0)
    script.error = REBALANCE_IN_PROGRESS
    script.pass_time(10.0)
    assert [round(at - start, 3) for at in script.beats] == [0.25, 0.5, 3.5, 6.5, 9.5]
    script.rebalance(2, 0, notice=PENDING)
    script.error, again = 0, script.now
    script.pass_time(1.1)
    assert script.beats[-4:] == [pytest.approx(again + each) for each in (0.25, 0.5, 0.75, 1.0)]


@pytest.mark.rule("19")
def test_a_throttle_time_is_obeyed() -> None:
    script = Beating()
    start = script.member(PENDING, 0)
    script.throttle = 1.5
    script.pass_time(3.5)
    assert [round(at - start, 3) for at in script.beats] == [0.25, 1.75, 3.25]


def test_a_throttle_time_is_believed_for_request_timeout_at_most() -> None:
    script = Beating(request_timeout=2.0)
    start = script.member(PENDING, 0)
    script.throttle = 2e6
    script.pass_time(5.0)
    assert [round(at - start, 3) for at in script.beats] == [0.25, 2.25, 4.25]


def test_a_throttle_time_leaves_room_for_a_heartbeat_in_the_session() -> None:
    script = Beating(session_timeout=6.0)
    start = script.member(PENDING, 0)
    script.throttle = 2e6
    script.pass_time(7.0)
    assert [round(at - start, 3) for at in script.beats] == [0.25, 3.25, 6.25]


@pytest.mark.rule("19")
def test_with_a_leader_of_another_client_a_hand_over_may_be_pending_for_a_moment() -> None:
    script = Beating(random=lambda: 0.0)
    start = script.member(None, 0)
    script.pass_time(20.0)
    assert script.beats[0] == start + 0.125
    assert set(script.waits_between(start, start + 5.0)) == {0.25}
    assert script.waits_between(start + 5.0, start + 20.0)[:4] == [0.5, 1.0, 2.0, 3.0]


@pytest.mark.rule("19")
def test_whose_group_is_untold_and_has_many_partitions_is_slower() -> None:
    script = Beating(topics={"t": 900})
    start = script.member(None, 0)
    script.pass_time(4.9)
    assert set(script.waits_between(start, start + 4.9)) == {2.0}


@pytest.mark.rule("19")
def test_who_has_nothing_in_an_untold_group_heartbeats_every_second() -> None:
    script = Beating()
    start = script.member(None)
    script.pass_time(4.9)
    assert set(script.waits_between(start, start + 4.9)) == {1.0}


@pytest.mark.rule("19")
def test_in_an_eager_group_of_another_client_nothing_is_withheld() -> None:
    script = Beating(assignors=["range"])
    start = script.member(None, 0)
    script.pass_time(4.0)
    assert script.beats == [start + 3.0]


def metadata(owned: tuple[int, ...]) -> bytes:
    return write_subscription(Subscription(topics=("t",), owned=tuple(tp(p) for p in owned), generation=1))


def lead(owned: dict[str, tuple[int, ...]]) -> dict[str, GroupNotice | None]:
    """What a leader of ours tells each member; owned: what each joins with."""
    script = NetworkScript()
    script.subscribe()
    request = script.requested(api.JoinGroup)
    members = tuple(api.GroupMember(member_id=name, metadata=metadata(parts)) for name, parts in owned.items())
    script.response(
        api.JoinGroup,
        api.JoinGroupResponse(
            generation=2, protocol=request.protocols[0].name, leader="a", member_id="a", members=members
        ),
    )
    made = script.requested(api.SyncGroup).assignments
    return {name: read_notice(read_assignment(data).userdata) for name, data in made.items()}


@pytest.mark.rule("19")
def test_a_leader_tells_the_groups_size_and_what_is_withheld() -> None:
    assert lead({"a": (0, 1, 2, 3), "b": ()}) == {
        "a": GroupNotice(members=2, place=0, withheld=2),
        "b": GroupNotice(members=2, place=1, withheld=2),
    }
    nothing_withheld = lead({"a": (0, 1), "b": (2, 3)})
    assert nothing_withheld == {"a": None, "b": None}, "user data would keep KIP-848 members out of the group"


def revocation_requested(script: NetworkScript, *partitions: int) -> None:
    """The group wants these from a member that owns 0 to 3."""
    script.member_of(1, 0, 1, 2, 3)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, *sorted({0, 1, 2, 3}.difference(partitions)), notice=PENDING)


@pytest.mark.rule("19")
def test_the_last_release_is_told_at_once() -> None:
    script = NetworkScript()
    revocation_requested(script, 1, 2)
    script.complete(1, 2)
    assert script.joining_with().owned == (tp(0), tp(3))


@pytest.mark.rule("19")
def test_releases_within_a_moment_share_one_rejoin() -> None:
    script = NetworkScript()
    revocation_requested(script, 1, 2, 3)
    script.complete(1)
    script.pass_time(0.3)
    script.complete(2)
    assert "JoinGroup" not in script.waits()
    script.pass_time(0.11)
    assert script.joining_with().owned == (tp(0), tp(3))


@pytest.mark.rule("19")
def test_a_join_that_is_sent_meanwhile_tells_of_the_release() -> None:
    script = NetworkScript()
    revocation_requested(script, 1, 2)
    script.complete(1)
    script.pass_time(0.25)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=REBALANCE_IN_PROGRESS))
    assert script.joining_with().owned == (tp(0), tp(2), tp(3))
    script.rebalance(3, 0, 3, notice=PENDING)
    script.pass_time(1.0)
    assert "JoinGroup" not in script.waits(), "the group knows"
