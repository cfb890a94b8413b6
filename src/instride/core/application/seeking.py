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
from instride.core.application.writes import Write
from instride.core.events import SetPosition

__all__ = ["fetch_again", "reset_due", "restarted", "seek"]


def seek(
    state: ApplicationState,
    held: OwnedPartition,
    offset: int,
    leader_epoch: int = -1,
    *,
    reset_from: int | None = None,
) -> None:
    """offset: a number, EARLIEST or LATEST. reset_from: where it stood, in a reset by law 2."""
    told = SetPosition(
        partition=held.partition,
        epoch=held.epoch,
        seek_number=held.seek_number + 1,
        fetch_number=held.fetch_number + 1,
        offset=offset,
        leader_epoch=leader_epoch,
        reset_from=reset_from,
    )
    state.write([*held.seeking(offset, leader_epoch), (state.send, told)])


def reset_due(state: ApplicationState) -> None:
    """Law 2, for every partition that is ready for it."""
    for held in state.lists.held.values():
        reset = held.due_reset()
        if reset is None:
            continue
        if held.position is not None and held.position <= reset:
            state.write([*held.restarting(), restarted(state, held)])
        else:
            # The network side tells from where to where, once it knows.
            seek(state, held, reset, held.reset_epoch, reset_from=held.position)


def fetch_again(state: ApplicationState, held: OwnedPartition) -> list[Write]:
    """Law 3. Whatever else is under way does not continue the buffer either."""
    end = held.fetch_end()
    told = SetPosition(
        partition=held.partition,
        epoch=held.epoch,
        seek_number=held.seek_number,
        fetch_number=held.fetch_number + 1,
        offset=held.origin if end is None else end,
        leader_epoch=held.end_epoch(),
        keeps_buffer=True,
    )
    return [(setattr, held, "fetch_number", held.fetch_number + 1), (state.send, told)]


def restarted(state: ApplicationState, held: OwnedPartition) -> Write:
    """Tells the network side, with `OwnedPartition.restarting`: fetch from the position, or where it is to be found."""
    told = SetPosition(
        partition=held.partition,
        epoch=held.epoch,
        seek_number=held.seek_number,
        fetch_number=held.fetch_number + 1,
        offset=held.origin if held.position is None else held.position,
        leader_epoch=held.leader_epoch,
    )
    return (state.send, told)
