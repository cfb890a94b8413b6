"""How long a member may believe that it is one."""

from __future__ import annotations

import pytest

from instride._core.lease import Lease


@pytest.mark.rule("membership")
def test_a_lease_holds_until_it_expires_and_without_end_at_first() -> None:
    lease = Lease()
    assert lease.holds(1e12)
    lease.expires = 10.0
    assert lease.holds(10.0)
    assert not lease.holds(10.001)
