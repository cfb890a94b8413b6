"""The wall clock may be put forwards or backwards by hours: what the network side does depends on it in a reset by
duration (`test_positions`) and in the moments that metrics state, and nowhere else."""

from __future__ import annotations

from network_script import NetworkScript

from instride._core.events import Polled
from instride._wire import api


def story(jumps: tuple[float, ...]) -> tuple[list[tuple[float, object, type]], list[object], list[str]]:
    """What a member sends, is told and logs, while its wall clock jumps each few seconds."""
    script = NetworkScript(heartbeat_interval=1.0, session_timeout=6.0, request_timeout=4.0, metadata_max_age=20.0)
    script.member_of(1, 0, 1)
    sent: list[tuple[float, object, type]] = []
    for jump in jumps:
        script.wall_clock += jump
        script.do(Polled(at=script.now))
        for each in [each for each in script.waiting if isinstance(each.request, api.Heartbeat)]:
            script.machine.response_received(each.request_id, api.HeartbeatResponse(error=0), script.now)
            script.waiting.remove(each)
        script.pass_time(1.3)
        sent += [(script.now, each.key, type(each.request)) for each in script.waiting]
    return sent, list(script.delivered), script.logs


def test_a_member_does_the_same_at_the_same_moments_whatever_the_wall_clock_does() -> None:
    day = 86_400.0
    jumps = (7200.0, -7200.0, day, -30 * day, 3600.0, -1.6e9, 2e9, 0.001) * 3
    steady = story((0.0,) * len(jumps))
    assert story(jumps) == steady
    assert any(kind is api.Heartbeat for _, _, kind in steady[0])
