"""How long a member may believe that it is one."""

from __future__ import annotations

import pytest

from instride._core.session_lease import Lease, Standing


@pytest.mark.rule("membership")
def test_a_lease_holds_until_it_expires_and_without_end_at_first() -> None:
    lease = Lease()
    assert lease.holds(1e12)
    lease.expires = 10.0
    assert lease.holds(10.0)
    assert not lease.holds(10.001)


@pytest.mark.rule("16")
def test_a_standing_ends_with_its_lease_and_no_later_lease_renews_it() -> None:
    lease = Lease()
    lease.expires = 10.0
    standing = Standing(lease, lease.number)
    assert standing.holds(10.0)
    assert not standing.holds(10.001)
    lease.number, lease.expires = 1, 30.0
    assert not standing.holds(20.0)
    assert Standing(lease, lease.number).holds(20.0)
