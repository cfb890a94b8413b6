"""What a leader of ours tells the members, in bytes."""

from __future__ import annotations

import pytest

from instride._wire.group_notice import GroupNotice, read_notice, write_notice

NOTICE = GroupNotice(members=1000, place=7, withheld=3)


def test_what_was_written_is_read() -> None:
    assert read_notice(write_notice(NOTICE)) == NOTICE


def test_a_later_version_may_add_fields() -> None:
    data = bytearray(write_notice(NOTICE)) + b"more"
    data[9] = 2
    assert read_notice(bytes(data)) == NOTICE


@pytest.mark.parametrize(
    "userdata",
    [
        None,
        b"",
        b"\x00\x00\x00\x01",
        write_notice(NOTICE)[:-1],
        b"I" + write_notice(NOTICE)[1:],
        b"instride\x00\x00" + bytes(12),
        write_notice(GroupNotice(members=0, place=0, withheld=0)),
        write_notice(GroupNotice(members=2, place=2, withheld=0)),
        write_notice(GroupNotice(members=2, place=-1, withheld=0)),
        write_notice(GroupNotice(members=2, place=0, withheld=-1)),
    ],
    ids=["none", "empty", "foreign", "cut off", "other mark", "version 0", "nobody", "place", "negative", "withheld"],
)
def test_what_is_no_notice_of_ours_is_none(userdata: bytes | None) -> None:
    assert read_notice(userdata) is None
