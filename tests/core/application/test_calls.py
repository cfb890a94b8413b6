"""Many changes that happen as one, and a function of the user's behind them."""

from __future__ import annotations

from collections import deque

import pytest

from instride._core.application.calls import Write, at_once, at_once_then


def test_all_changes_are_made_in_order() -> None:
    made: list[int] = []
    at_once((made.append, number) for number in range(3))
    at_once([])
    assert made == [0, 1, 2]


def test_what_the_last_one_does_comes_after_the_changes_and_is_the_outcome() -> None:
    queue = deque([1, 2])
    # One returns something, one nothing: neither is taken for the outcome, or for the end.
    writes: list[Write] = [(queue.popleft,), (queue.append, 3)]
    assert at_once_then(writes, lambda: list(queue)) == [2, 3]
    assert at_once_then([], lambda: "alone") == "alone"


def test_where_a_change_fails_the_last_one_is_not_called() -> None:
    called: list[str] = []
    with pytest.raises(IndexError):
        at_once_then([(deque[int]().popleft,)], lambda: called.append("called"))
    assert called == []


@pytest.mark.parametrize("error", [StopIteration("of next()"), KeyboardInterrupt(), LookupError("a bug")], ids=repr)
def test_what_the_last_one_raises_is_raised_whatever_it_is(error: BaseException) -> None:
    """To the iterator that the changes come from, a StopIteration is no error but its end."""

    def fails() -> None:
        raise error

    made: list[int] = []
    with pytest.raises(type(error)) as raised:
        at_once_then([(made.append, 1)], fails)
    assert raised.value is error
    assert made == [1]
