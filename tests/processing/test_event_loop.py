"""The event loop that a processor makes."""

from __future__ import annotations

import asyncio

import pytest

from instride._processing.event_loop import going_on, new_event_loop


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_loop_that_is_to_end_ends_though_a_coroutine_exits_in_the_same_turn(kind: type[BaseException]) -> None:
    """asyncio forgets `loop.stop` then."""
    told: list[type[BaseException]] = []

    async def leave() -> None:
        await asyncio.sleep(0)  # the turn after the future is done is the one in which the loop stops
        raise kind

    loop = new_event_loop()
    try:
        over = loop.create_future()
        loop.call_soon(over.set_result, None)
        task = loop.create_task(leave())
        going_on(loop, over, lambda error: told.append(type(error)))
        assert told == [kind]
        assert isinstance(task.exception(), kind)
    finally:
        loop.close()
