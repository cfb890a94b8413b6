"""Where a partition goes on: seeks by the user, and the resets that only the application side may do.

Laws
1. A seek raises the seek number, so that what was finished before it reaches no later commit.
2. A partition that is out of range is reset by a seek, once all that was fetched before was returned. The reset may
   lead back, and only a higher seek number lets commits go back.
3. What arrived and does not continue the buffer is fetched again from the buffer's end. What is buffered stays, and
   no seek is needed.
4. Where a log was truncated behind the position no seek is needed: what comes next is fetched again.
5. A seek says whether the user knew that a log was truncated, or its topic recreated: the network side may know it
   already.
6. What the network side asks to be dropped, a poll drops: it is fetched again from the position, and no seek is needed.
   A record that cannot be deserialized stays one.
"""

from __future__ import annotations

from functools import partial

from instride._core.application.calls import Write, first
from instride._core.application.partition import OwnedPartition
from instride._core.application.state import ApplicationState
from instride._core.events import DropBuffered, SetPosition

__all__ = ["drop_due", "fetch_again", "reset_due", "restarted", "seek"]


def seek(
    state: ApplicationState,
    owned: OwnedPartition,
    offset: int,
    leader_epoch: int = -1,
) -> None:
    """offset: a number, EARLIEST or LATEST."""
    # Where a handler of a signal seeks as well, this seek comes after it.
    state.write_computed(partial(_seeking, state, owned, offset, leader_epoch))


def _seeking(
    state: ApplicationState, owned: OwnedPartition, offset: int, leader_epoch: int, *, resets: bool = False
) -> list[Write]:
    """resets: by law 2."""
    reset_from = owned.position if resets else None
    told = SetPosition(
        partition=owned.partition,
        epoch=owned.epoch,
        seek_number=owned.seek_number + 1,
        fetch_number=owned.fetch_number + 1,
        offset=offset,
        leader_epoch=leader_epoch,
        reset_from=reset_from,
        divergences=owned.divergences if resets else owned.divergences_known,
    )
    return [
        *state.marking_moved(owned),
        *owned.seeking(offset, leader_epoch, reset_from),
        state.lists.polls.changing(),
        (state.send, told),
    ]


def reset_due(state: ApplicationState) -> None:
    """Law 2, for every partition that is ready for it."""
    for owned in state.lists.failing.those():
        # Where a handler of a signal seeks, nothing is due any more.
        state.write_computed(partial(_resetting, state, owned))


def _resetting(state: ApplicationState, owned: OwnedPartition) -> list[Write]:
    reset = owned.due_reset()
    if reset is None:
        return []
    if owned.position is not None and owned.position <= reset:
        return [*owned.restarting(), restarted(state, owned)]
    # The network side tells from where to where, once it knows.
    return _seeking(state, owned, reset, owned.reset_epoch, resets=True)


def drop_due(state: ApplicationState) -> None:
    """Law 6."""
    while (event := first(state.inbox.to_drop)) is not None:
        state.write_computed(partial(_dropping, state, event))


def _dropping(state: ApplicationState, event: DropBuffered) -> list[Write]:
    to_drop, owned, writes = state.inbox.to_drop, state.lists.owned.get(event.partition), list[Write]()
    if owned is not None and (owned.epoch, owned.fetch_number) == (event.epoch, event.fetch_number):
        stays = (setattr, owned, "unreadable", owned.unreadable)
        writes = [*owned.restarting(), stays, restarted(state, owned)]
    # Nothing, where a handler of a signal was quicker.
    return [(to_drop.index, event, 0, 1), (to_drop.popleft,), *writes] if first(to_drop) is event else []


def fetch_again(state: ApplicationState, owned: OwnedPartition) -> list[Write]:
    """Law 3. Whatever else is under way does not continue the buffer either."""
    end = owned.fetch_end()
    told = SetPosition(
        partition=owned.partition,
        epoch=owned.epoch,
        seek_number=owned.seek_number,
        fetch_number=owned.fetch_number + 1,
        offset=owned.origin if end is None else end,
        leader_epoch=owned.end_epoch(),
        keeps_buffer=True,
        reset_from=owned.reset_from if end is None else None,
    )
    return [
        (setattr, owned, "fetch_number", owned.fetch_number + 1),
        state.lists.polls.changing(),
        (state.send, told),
    ]


def restarted(state: ApplicationState, owned: OwnedPartition) -> Write:
    """Tells the network side, with `OwnedPartition.restarting`: fetch from the position, or where it is to be found."""
    told = SetPosition(
        partition=owned.partition,
        epoch=owned.epoch,
        seek_number=owned.seek_number,
        fetch_number=owned.fetch_number + 1,
        offset=owned.origin if owned.position is None else owned.position,
        leader_epoch=owned.leader_epoch,
        reset_from=owned.reset_from if owned.position is None else None,
    )
    return (state.send, told)
