"""What a leader of ours tells the members in the user data of their assignments: how large the group is, and whether a
hand-over is pending. Only members of ours read it (docs/rebalance.md, rule 19).

Laws
1. The bytes begin with a mark of ours. Whatever begins otherwise, or is cut off, is another client's, and no notice.
2. A higher version is read as far as we know it; it may add fields at the end.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

__all__ = ["GroupNotice", "read_notice", "write_notice"]

_MARK: Final = b"instride"
_VERSION: Final = 1
_FIELDS: Final = struct.Struct(">hiii")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNotice:
    """members: of the group. place: of this member among them, from 0. withheld: partitions that their owners are to
    release before the group can assign them to their next owners."""

    members: int
    place: int
    withheld: int


def write_notice(notice: GroupNotice) -> bytes:
    """The user data of one member's assignment."""
    return _MARK + _FIELDS.pack(_VERSION, notice.members, notice.place, notice.withheld)


def read_notice(userdata: bytes | None) -> GroupNotice | None:
    """None where it is no notice (law 1)."""
    end = len(_MARK) + _FIELDS.size
    if userdata is None or len(userdata) < end or not userdata.startswith(_MARK):
        return None
    version, members, place, withheld = _FIELDS.unpack(userdata[len(_MARK) : end])
    if version < _VERSION or members < 1 or not 0 <= place < members or withheld < 0:
        return None
    return GroupNotice(members=members, place=place, withheld=withheld)
