"""Where a partition goes on: seeks by the user, and the resets that only the application side may do.

Laws
1. A seek raises the seek number, so that what was finished before it reaches no later commit.
2. A partition that is out of range is reset by a seek, once all that was fetched before was returned. The reset may
   lead back, and only a higher seek number lets commits go back.
3. What arrived and does not continue the buffer is fetched again from the buffer's end. What is buffered stays, and
   no seek is needed.
4. Where a log was cut behind the position no seek is needed: what comes next is fetched again.
"""

from __future__ import annotations

from instride.core.application.partition import OwnedPartition
from instride.core.application.state import ApplicationState
from instride.core.events import SetPosition

__all__ = ["fetch_again", "reset_due", "seek", "tell_position"]


def seek(state: ApplicationState, held: OwnedPartition, offset: int, leader_epoch: int = -1) -> None:
    """offset: a number, EARLIEST or LATEST."""
    held.seek(offset, leader_epoch)
    tell_position(state, held)


def _reset(state: ApplicationState, held: OwnedPartition, offset: int) -> None:
    """Law 2. The network side tells from where to where, once it knows."""
    start = held.position
    held.seek(offset, held.reset_epoch)
    tell_position(state, held, reset_from=start)


def reset_due(state: ApplicationState) -> None:
    """Law 2, for every partition that is ready for it."""
    for held in state.lists.held.values():
        reset = held.due_reset()
        if reset is None:
            continue
        if held.position is not None and held.position <= reset:
            held.restart_fetch()
            tell_position(state, held)
        else:
            _reset(state, held, reset)


def fetch_again(state: ApplicationState, held: OwnedPartition) -> None:
    """Law 3. Whatever else is under way does not continue the buffer either."""
    held.drop_arrivals()
    tell_position(state, held, keeps_buffer=True)


def tell_position(
    state: ApplicationState, held: OwnedPartition, *, keeps_buffer: bool = False, reset_from: int | None = None
) -> None:
    """Fetch from the end of the buffer, or from where the position is to be found."""
    end = held.fetch_end()
    state.post(
        SetPosition(
            partition=held.partition,
            epoch=held.epoch,
            seek_number=held.seek_number,
            fetch_number=held.fetch_number,
            offset=held.origin if end is None else end,
            leader_epoch=held.end_epoch(),
            keeps_buffer=keeps_buffer,
            reset_from=reset_from,
        )
    )
