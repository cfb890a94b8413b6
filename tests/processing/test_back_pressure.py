"""When a partition is paused and resumed, at the edges of its share."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from instride._processing.back_pressure import has_its_share, may_resume


@dataclass
class Queue:
    queued: int
    records: int
    size: int


@pytest.mark.parametrize(
    ("queue", "free", "free_bytes", "paused", "resumed"),
    [
        (Queue(0, 0, 0), 0, 0, True, True),
        (Queue(1, 1, 1), 9, 0, True, False),
        (Queue(4, 4, 4), 9, 900, False, False),
        (Queue(5, 5, 5), 10, 900, True, False),
        (Queue(2, 2, 2), 8, 900, False, True),
        (Queue(3, 3, 3), 8, 900, False, False),
        (Queue(2, 4, 200), 100, 200, True, False),
        (Queue(2, 4, 200), 100, 201, False, False),
        (Queue(2, 4, 200), 100, 400, False, True),
        (Queue(2, 4, 200), 100, 399, False, False),
    ],
)
def test_its_share_is_half_and_a_quarter_resumes(
    queue: Queue, free: int, free_bytes: int, paused: bool, resumed: bool
) -> None:
    assert (has_its_share(queue, free, free_bytes), may_resume(queue, free, free_bytes)) == (paused, resumed)


def test_a_batch_grows_to_its_size() -> None:
    assert not has_its_share(Queue(5, 5, 5), 10, 900, batch=6)
    assert has_its_share(Queue(5, 5, 5), 10, 900, batch=5)
