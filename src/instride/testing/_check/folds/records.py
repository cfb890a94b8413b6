"""The logs, where each assignment reads, what polls return, and what becomes of the records."""

from __future__ import annotations

from collections.abc import Set

from instride.records import TopicPartition
from instride.testing._check.assignment import Assignment, Delivered, InHand
from instride.testing._check.events import Event
from instride.testing._check.folds.turns import count_turns
from instride.testing._check.history_state import Cut, Folds, HistoryState
from instride.testing._check.steps import Again, Change, Delivery, Place

__all__ = ["FOLDS"]


def _produced(state: HistoryState, event: Event) -> None:
    partition, end = event.detail
    state.ends[partition] = end
    state.produced[partition].append((end, event.time))
    owner = state.newest.get(partition)
    if owner is None or owner.next is None or owner.waiting_since is not None:
        return
    if state.has_records(partition, owner.next):
        owner.waits(event.time)


def _log_starts(state: HistoryState, event: Event) -> None:
    partition, offset = event.detail
    state.starts[partition] = offset


def _hole(state: HistoryState, event: Event) -> None:
    """One that is told before the log has grown so far is of no record that anybody may return."""
    partition, first, last = event.detail
    state.holes[partition].update(range(first, last + 1))
    if state.judged_by.view == "broker":
        state.never[partition].update(range(max(first, state.ends.get(partition, 0)), last + 1))
    if first <= state.reached(partition) <= last:
        state.prefix[partition] = state.next_record(partition, state.reached(partition))
    _may_have_nothing_to_read(state, partition)


def _truncated(state: HistoryState, event: Event) -> None:
    """What was returned of it before is nobody's work any more."""
    partition, end, leader_epoch = event.detail
    state.truncate(partition, Cut(end, leader_epoch))
    _may_have_nothing_to_read(state, partition)


def _recreated(state: HistoryState, event: Event) -> None:
    """Nor is what the group had committed of it."""
    partition, leader_epoch = event.detail
    state.recreate(partition, leader_epoch)
    _may_have_nothing_to_read(state, partition)


def _may_have_nothing_to_read(state: HistoryState, partition: TopicPartition) -> None:
    owner = state.newest.get(partition)
    if owner is not None and owner.next is not None and not state.has_records(partition, owner.next):
        owner.waiting_since = None


def _looked_up(state: HistoryState, event: Event) -> None:
    """A member that leaves may still hear what it asked while it owned the partition."""
    partition, offset, code = event.detail
    each = state.live[event.who].get(partition) or state.last.get((event.who, partition))
    if each is not None and not code:
        each.responses.append(offset)
        each.lines.append(state.line)


def _out_of_range(state: HistoryState, event: Event) -> None:
    each = state.live[event.who].get(event.detail[0])
    if each is not None:
        each.moves_by(event.what)
        each.log_start = None
        each.lines.append(state.line)


def _seek(state: HistoryState, event: Event) -> None:
    """The user's own will: he may read again what he had, and commit less than he did. He may seek in what is lost,
    too, as long as no poll has told him, and though it is assigned again meanwhile."""
    (partition,) = event.detail
    for before in state.of_member[event.who]:
        if before.partition == partition and before.ended == "lost":
            before.moves_by(event.what)
    each = state.live[event.who].get(partition)
    if each is not None:
        each.reads_elsewhere(state.holes.get(partition, frozenset()))
        _has_moved(state, each)
        each.waiting_since, each.passed = None, 0
        each.lines.append(state.line)


def _has_moved(state: HistoryState, each: Assignment) -> None:
    here = each.who, each.partition
    state.allowed_when_moved[here] = len(state.rewinds[here])


def _positioned(state: HistoryState, event: Event) -> None:
    partition, epoch, offset = event.detail
    each = state.find(event.who, partition, epoch)
    state.ask("positioned", Place(event, each, offset))
    is_committed = each.start is None and not each.reset and offset == state.committed.get(partition)
    asked = each.moves == "asked"
    of_before = state.deleted_since(each, offset) if asked else None
    cuts_before = state.cuts_before_recreation(each, offset) if asked else None
    other = state.recreated_since(each) if asked and of_before is None and cuts_before is None else None
    is_cut = asked and offset in state.places_of_cuts(each)
    stays = is_cut or (not asked and each.next == offset)
    to_deleted = of_before is not None and state.judged_by.reset == "earliest"  # "latest" may lead there in the new one
    _begin(state, each, offset, is_cut=is_cut, is_other=other is not None, to_deleted=to_deleted)
    if other is not None:
        each.earlier, each.least_epoch = None, state.next_topic_of(each)  # no commit of before is taken
    if other is not None or not stays:  # else it is still of an epoch before that of the truncation
        each.read_epoch = state.committed_epochs[partition] if is_committed else -1
    if of_before is not None and to_deleted:  # of the new one its beginning is due
        each.read_epoch = of_before.leader_epoch - 1
    each.cuts = len(state.cuts.get(partition, ())) if cuts_before is None else cuts_before
    each.waiting_since = None
    if state.has_records(partition, offset):
        each.waits(event.time)


def _pauses(state: HistoryState, event: Event) -> None:
    for partition in event.detail[0]:
        each = state.live[event.who].get(partition)
        if each is not None:
            each.paused, each.waiting_since = True, None


def _resumes(state: HistoryState, event: Event) -> None:
    for partition in event.detail[0]:
        each = state.live[event.who].get(partition)
        if each is not None:
            each.paused = False
            if each.next is not None and state.has_records(partition, each.next):
                each.waits(event.time)


def _begin(
    state: HistoryState,
    each: Assignment,
    offset: int,
    *,
    is_cut: bool = False,
    is_other: bool = False,
    to_deleted: bool = False,
) -> None:
    """is_cut: it was to start elsewhere, and the log was truncated here. is_other: it was, and the log is another one.
    to_deleted: this is a place in a topic that was deleted: in the next one nothing is passed over."""
    if each.moves:
        each.moves = "told"
    if state.judged_by.reset == "latest" and each.responses[-1:] == [None]:
        state.skip_to(each.partition, offset)
    if each.start is None:
        each.begin(offset)
        each.began_at_committed = state.committed.get(each.partition)
        _may_begin_where_sent_back(state, each.partition, offset)
        state.begins_late(each.partition, offset)
        if each.reset == "seek":
            state.forget_deliveries(each.partition, min(offset, *(each.earlier or (offset,))))
    if each.reset:
        if each.reset == "out of range":
            each.log_start = state.start_of(each.partition)
            state.was_reset[each.partition] = offset
        if each.next != offset or is_cut or is_other:  # it may have been behind a marker
            if offset < (each.next or 0) and not (is_cut or is_other):
                state.forget_deliveries(each.partition, offset)  # the policy leads back
            each.reset_to(offset, is_cut=is_cut)
            _has_moved(state, each)
        if not to_deleted:
            state.skip_to(each.partition, offset)


def _may_begin_where_sent_back(state: HistoryState, partition: TopicPartition, offset: int) -> None:
    """Whoever begins at a commit that was allowed to go back, and has no response, knows that it was taken."""
    first = state.next_record(partition, offset)
    for sent in state.sent_back[partition].values():
        if sent.allowed and state.next_record(partition, sent.offset) == first:
            state.forget_deliveries(partition, offset)


def _still_paused(state: HistoryState, event: Event) -> None:
    state.paused[event.who] = event.detail[0]


def _poll(state: HistoryState, event: Event) -> None:
    who = event.who
    deliveries, requested, lost = event.detail
    paused = state.paused.pop(who, ())
    state.ask("poll", event)
    waiting = state.to_tell[who]
    state.to_tell[who] = [
        (at, each) for at, each in waiting if each.partition not in lost and not is_due(state, event, at)
    ]
    for partition in lost:
        if partition in state.untold[who]:
            state.untold[who].remove(partition)
    for partition, epoch, seek, first, last, leader_epoch in deliveries:
        each = state.find(who, partition, epoch)
        if each.next is None and state.judged_by.view == "clients":
            _begin(state, each, first)  # a peer does not tell where it begins
        before = each.of_before_its_seek(seek)
        due = each.next if before is None else before.next
        flags = partition in requested, partition in lost, partition in paused and not _is_paused_since(each)
        state.ask("delivery", Delivery(event, each, first, last, leader_epoch, due, *flags))
        each.seek = seek
        if before is None:
            _delivered(state, event, each, Delivered(first, last, leader_epoch, state.line))
        else:
            each.in_hand = before._replace(next=last + 1)
            each.left.update(range(first, last + 1))
    count_turns(state, event, paused)
    for partition in requested:
        live = state.live[who].get(partition)
        if live is not None:
            live.undelayed = True
    state.delivered_until[who] = state.networked_at.get(who, 0.0)


def _is_paused_since(each: Assignment) -> bool:
    """By a signal's handler: the poll that this interrupts may have taken records before."""
    return each.in_hand is not None and not each.in_hand.paused


def is_due(state: HistoryState, event: Event, lost_at: float) -> bool:
    """Whether this poll has to tell a loss of that time: it was delivered before the poll began.

    A client writes a loss down just before its network thread delivers it, and a busy machine may stop that thread in
    between. Its next request or response comes after the delivery.
    """
    if state.judged_by.view == "broker":
        return lost_at < event.time
    return lost_at < state.delivered_until.get(event.who, 0.0)


def _delivered(state: HistoryState, event: Event, each: Assignment, what: Delivered) -> None:
    more = state.has_records(each.partition, what.last + 1)
    each.waiting_since = None
    if more:
        each.waits(event.time)
    each.failed_at = None
    each.passed = 0
    each.next, each.read_epoch = what.last + 1, what.leader_epoch
    each.cuts = state.cuts_known_to(each)
    if each.moves == "told":
        each.moves = ""
        if each.reset == "seek":  # to there, though the log may have been truncated since
            state.skip_to(each.partition, what.first)
    each.deliveries.append(what)
    each.left.difference_update(range(what.first, what.last + 1))
    before, cut = state.delivered[each.partition], state.truncated_at(each.partition, what.last, what.leader_epoch)
    for offset in range(what.first, what.last + 1 if cut is None else cut):
        if offset in before and not each.superseded:
            old = before[offset].delivery_of(offset)
            lines = (old.line if old is not None else what.line, what.line)
            state.again.append(Again(event, offset, before[offset], each, before[offset].committed, lines))
        before[offset] = each
    if each.who in state.taken_for_done:
        _finish(state, each, what.first, what.last)


def _finish(state: HistoryState, each: Assignment, first: int, last: int) -> None:
    holes: Set[int] = state.holes.get(each.partition, frozenset())
    for offset in range(first, last + 1):
        if _is_truncated(state, each, offset):
            each.begun.discard(offset)
            each.lost_work.discard(offset)
            continue
        if offset not in each.left:
            each.finish(offset, holes)
        state.finish(each.partition, offset)


def _is_truncated(state: HistoryState, each: Assignment, offset: int, *, first: int | None = None) -> bool:
    """Whether the log has no more what was returned. first: as in `truncated_at`."""
    if each.partition not in state.cuts:
        return False
    returned = each.delivery_of(offset)
    if returned is None:
        return False
    return state.truncated_at(each.partition, offset, returned.leader_epoch, first=first) is not None


def _signal(state: HistoryState, event: Event) -> None:
    for partition, epoch, seek_number in event.detail[0]:
        each = state.find(event.who, partition, epoch)
        if each.in_hand is None:
            each.in_hand = InHand(each.next, seek_number, each.paused, event.time)
            state.in_hand[event.who].append(each)
        elif not each.paused:  # an earlier signal's handler has resumed it: records may have been taken since
            each.in_hand = each.in_hand._replace(paused=False)


def _signal_over(state: HistoryState, event: Event) -> None:
    for each in state.in_hand.pop(event.who, []):
        each.in_hand = None


def _delay(state: HistoryState, event: Event) -> None:
    for partition in event.detail[0]:
        each = state.live[event.who].get(partition)
        if each is not None:
            state.ask("delayed", Change(event, each))
            each.undelayed, each.delayed = False, True
            each.idle_delays = 0 if state.has_work(each) else each.idle_delays + 1


def _begins(state: HistoryState, event: Event) -> None:
    partition, offset, epoch = event.detail
    each = state.find(event.who, partition, epoch)
    state.ask("begins", Place(event, each, offset))
    state.tells_begins.add(event.who)
    of_before_a_reset = _is_truncated(state, each, offset, first=each.cuts)
    (each.lost_work if of_before_a_reset else each.begun).add(offset)


def _done(state: HistoryState, event: Event) -> None:
    partition, offset, epoch, *leader_epochs = event.detail
    each = state.find(event.who, partition, epoch)
    newest = each.delivery_of(offset)
    if newest is not None and newest.leader_epoch not in (leader_epochs or [newest.leader_epoch]):
        each.lost_work.discard(offset)  # since this record the log was truncated, and another one returned
    else:
        _finish(state, each, offset, offset)


def _range_done(state: HistoryState, event: Event) -> None:
    partition, first, last, epoch = event.detail
    _finish(state, state.find(event.who, partition, epoch), first, last)


def _failed(state: HistoryState, event: Event) -> None:
    partition, _, epoch = event.detail
    state.find(event.who, partition, epoch).excused = True


def _not_begun(state: HistoryState, event: Event) -> None:
    partition, epoch, offset = event.detail
    state.find(event.who, partition, epoch).not_begun = offset


def _gave_up(state: HistoryState, event: Event) -> None:
    for partition in event.detail[0]:
        if partition in state.live[event.who]:
            state.live[event.who][partition].excused = True


FOLDS: Folds = {
    "produced": _produced,
    "log starts": _log_starts,
    "hole": _hole,
    "truncated": _truncated,
    "recreated": _recreated,
    "looked up": _looked_up,
    "out of range": _out_of_range,
    "seek": _seek,
    "positioned": _positioned,
    "pauses": _pauses,
    "resumes": _resumes,
    "still paused": _still_paused,
    "poll": _poll,
    "signal": _signal,
    "signal over": _signal_over,
    "delay": _delay,
    "begins": _begins,
    "done": _done,
    "range done": _range_done,
    "failed": _failed,
    "cancelled": _failed,
    "gave up": _gave_up,
    "not begun": _not_begun,
}
