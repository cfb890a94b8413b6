"""What `assignment` shows between two polls."""

from application_script import Script, tp

from instride._core.events import Revoked


def test_a_partition_whose_revoke_is_complete_is_not_assigned_though_no_poll_came() -> None:
    script = Script()
    script.subscribe()
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.poll()
    assert script.machine.assignment() == {tp(0), tp(1)}, "its revoke is completing"
    script.up(Revoked(partitions={tp(0): 1}))
    assert script.machine.assignment() == {tp(1)}, "another member may have it by now"
