"""Scripts of raw members of a group: readable transcripts that are played, and say what response each step gets.

    # Who asks first is given an id.
    A join                       -> MEMBER_ID_REQUIRED
    A join                       -> generation 1 of cooperative-sticky, leader A, members A()
    A sync A=0,1,2,3             -> assigned 0,1,2,3
    B join                       -> MEMBER_ID_REQUIRED
    B join ...
    A heartbeat until REBALANCE_IN_PROGRESS -> REBALANCE_IN_PROGRESS

Laws
1. A step is played, and its response is written behind its arrow; what stood there before is not looked at. So
   a play is compared with the script as a whole, and the script is the first comparison's result written down.
2. Responses are written without what a broker is free in: member ids become names, members are sorted by name.
3. Three dots end a step that does not wait for its response. The step `B joined` (synced, fetched) does;
   `B waits for join` says whether it is still without one. `soon` does both: who has no response soon, waits.
4. What is not said is as last time: a member's id and generation. `gen=`, `as=` and `on=` say otherwise.

Steps: A is session=S rebalance=S protocols=P,Q instance=ID | A join [owned=0,1] | A sync [A=0,1 B=2] | A leave
| A heartbeat [until ERROR] | A commit 0=5 | A offsets 0 1 | A list 0@earliest [epoch=E] | A metadata [missing]
| A fetch 0@3 [wait=S] [min=BYTES] [epoch=E] | A coordinator | A forgets | A reconnects | produce 0 5
| retain 0 2 (so many records of partition 0) | wait S | delete | create (the topic) | A ends 0=2 (of epoch 2)
| A learns (the topic's id). Fetches, commits and "offsets" with topic=1 name the topic by the id that was learned
first; with topic=0 by one that there never was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from raw_places import Place

from instride._wire import api
from instride._wire.consumer_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from instride.records import TopicPartition

__all__ = ["Stage", "play"]

_PATIENCE: Final = 25.0
_NO_TOPICS_ID: Final = UUID(int=99)
_TIMESTAMPS: Final = {"earliest": -2, "latest": -1}
_ASYNC: Final = {"joined": "join", "synced": "sync", "fetched": "fetch", "sessioned": "session", "committed": "commit"}

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Member:
    """session, rebalance: seconds. pending: channel and ticket of requests without a response, by verb."""

    name: str
    id: str = ""
    generation: int = -1
    session: float = 30.0
    rebalance: float = 30.0
    protocols: tuple[str, ...] = ("cooperative-sticky",)
    protocol: str = ""
    instance: str | None = None
    pending: dict[str, tuple[str, int]] = field(default_factory=dict)
    fetch_session: int = 0
    fetch_epoch: int = 0
    known: dict[api.Partition, api.FetchPartition] = field(default_factory=dict)


@dataclass(slots=True)
class _Step:
    who: str
    verb: str
    words: list[str]
    settings: dict[str, str]

    def generation(self, member: _Member) -> int:
        return int(self.settings.get("gen", member.generation))

    def member_id(self, member: _Member) -> str:
        return {"nobody": "", "stranger": "stranger"}.get(self.settings.get("as", ""), member.id)


def play(script: str, place: Place, times: list[float] | None = None) -> str:
    """The script's text with what the place responded.

    times: takes the place's time at the start and at the end of each line, in seconds.
    """
    stage, told, times = Stage(place), [], [] if times is None else times
    times.append(place.now())
    for line in script.splitlines():
        try:
            told.append(stage.line(line))
        finally:
            times.append(place.now())
    return "\n".join(told) + "\n"


class Stage:
    """A place, and the members that act there. members: by name, as far as the script has named them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.members: dict[str, _Member] = {}
        self._names: dict[str, str] = {}
        self._topic_ids = [_NO_TOPICS_ID]

    def line(self, line: str) -> str:
        command = line.partition("->")[0].strip()
        if not command or command.startswith("#"):
            return line.rstrip()
        try:
            outcome = self._step(command)
        except AssertionError as error:
            raise AssertionError(f"at {command!r}: {error}") from error
        return f"{command:<46} -> {outcome}" if outcome else command

    def _step(self, command: str) -> str:
        who, *rest = command.split()
        if who == "wait":
            self._place.wait(float(rest[0]))
            return ""
        if who == "produce":
            self._place.produce(int(rest[0]), int(rest[1]))
            return ""
        if who == "retain":
            self._place.retain(int(rest[0]), int(rest[1]))
            return ""
        if who in ("delete", "create"):
            (self._place.delete if who == "delete" else self._place.create)()
            return ""
        settings = dict(word.split("=", 1) for word in rest[1:] if "=" in word)
        step = _Step(who, rest[0], [word for word in rest[1:] if "=" not in word], settings)
        member = self.members.setdefault(who, _Member(name=who))
        told: str = getattr(self, f"_{step.verb}")(member, step)
        return told

    # -- asking

    def _ask(
        self, member: _Member, step: _Step, request: api.Request, kind: type[T], channel: str = "rest"
    ) -> T | None:
        """The response, or None where the step does not wait for it."""
        channel = step.settings.get("on", channel)
        ticket = self._place.send(member.name, channel, request)
        member.pending[step.verb] = (channel, ticket)
        return None if "..." in step.words else self._await(member, step, kind)

    def _await(self, member: _Member, step: _Step, kind: type[T]) -> T | None:
        """The response to the step, or None where it would have it soon and does not."""
        verb = _ASYNC.get(step.verb, step.verb)
        channel, ticket = member.pending[verb]
        patience = self._place.soon if "soon" in step.words else _PATIENCE
        response = self._place.take(member.name, channel, ticket, patience=patience)
        if response is None and "soon" in step.words:
            return None
        assert isinstance(response, kind), f"no {kind.__name__} within {patience:g} s but {response}"
        del member.pending[verb]
        return response

    def _waits(self, member: _Member, step: _Step) -> str:
        channel, ticket = member.pending[step.words[-1]]
        response = self._place.take(member.name, channel, ticket, patience=0.05)
        return "yes" if response is None else f"no: {response}"

    # -- the member itself

    def _is(self, member: _Member, step: _Step) -> str:
        member.session = float(step.settings.get("session", member.session))
        member.rebalance = float(step.settings.get("rebalance", member.rebalance))
        member.instance = step.settings.get("instance", member.instance)
        if "protocols" in step.settings:
            member.protocols = tuple(step.settings["protocols"].split(","))
        return ""

    def _forgets(self, member: _Member, _: _Step) -> str:
        member.id, member.generation = "", -1
        return ""

    def _reconnects(self, member: _Member, _: _Step) -> str:
        self._place.drop(member.name, "join")
        return ""

    # -- the group

    def _join(self, member: _Member, step: _Step) -> str:
        owned = tuple(TopicPartition(self._place.topic, p) for p in _numbers(step.settings.get("owned", "")))
        metadata = write_subscription(Subscription(topics=(self._place.topic,), owned=owned))
        request = api.JoinGroup(
            group_id=self._place.group,
            session_timeout=member.session,
            rebalance_timeout=member.rebalance,
            member_id=step.member_id(member),
            group_instance_id=member.instance,
            protocols=tuple(api.GroupProtocol(name=name, metadata=metadata) for name in member.protocols),
        )
        response = self._ask(member, step, request, api.JoinGroupResponse, "join")
        return _without_response(step) if response is None else self._joined_with(member, response)

    def _joined(self, member: _Member, step: _Step) -> str:
        response = self._await(member, step, api.JoinGroupResponse)
        return _without_response(step) if response is None else self._joined_with(member, response)

    def _joined_with(self, member: _Member, response: api.JoinGroupResponse) -> str:
        if _name(response.error) == "MEMBER_ID_REQUIRED" or (member.instance and not response.error):
            member.id = response.member_id
            self._names[member.id] = member.name
        if response.error:
            return _name(response.error)
        assert response.member_id == member.id
        member.generation, member.protocol = response.generation, response.protocol or ""
        told = f"generation {response.generation} of {response.protocol}, leader {self._who(response.leader)}"
        names = sorted(
            f"{each.group_instance_id or self._who(each.member_id)}({_owned(each.metadata)})"
            for each in response.members
        )
        told = f"{told}, members {' '.join(names)}" if names else told
        return f"{told}, assigns nothing" if response.skip_assignment else told

    def _who(self, member_id: str) -> str:
        """A static one's id may be nobody's yet who has heard of it."""
        return self._names.get(member_id, "another")

    def _sync(self, member: _Member, step: _Step) -> str:
        assignments = {
            self.members[name].id: self._assignment(numbers)
            for name, numbers in step.settings.items()
            if name in self.members
        }
        request = api.SyncGroup(
            group_id=self._place.group,
            generation=step.generation(member),
            member_id=step.member_id(member),
            group_instance_id=member.instance,
            protocol=member.protocol or member.protocols[0],
            assignments=assignments,
        )
        response = self._ask(member, step, request, api.SyncGroupResponse, "join")
        return _without_response(step) if response is None else _synced_with(response)

    def _synced(self, member: _Member, step: _Step) -> str:
        response = self._await(member, step, api.SyncGroupResponse)
        return _without_response(step) if response is None else _synced_with(response)

    def _assignment(self, numbers: str) -> bytes:
        partitions = tuple(TopicPartition(self._place.topic, number) for number in _numbers(numbers))
        return write_assignment(Assignment(partitions=partitions))

    def _heartbeat(self, member: _Member, step: _Step) -> str:
        wanted = step.words[-1] if "until" in step.words else ""
        for _ in range(500):
            told = self._beat(member, step)
            if not wanted or told == wanted:
                return told
            self._place.wait(0.02)
        raise AssertionError(f"it was never {wanted}, but {told}")

    def _beat(self, member: _Member, step: _Step) -> str:
        request = api.Heartbeat(
            group_id=self._place.group,
            generation=step.generation(member),
            member_id=step.member_id(member),
            group_instance_id=member.instance,
        )
        response = self._ask(member, step, request, api.HeartbeatResponse)
        assert response is not None
        return _name(response.error)

    def _leave(self, member: _Member, step: _Step) -> str:
        request = api.LeaveGroup(
            group_id=self._place.group, member_id=step.member_id(member), group_instance_id=member.instance
        )
        response = self._ask(member, step, request, api.LeaveGroupResponse)
        assert response is not None
        return _name(response.error)

    # -- offsets

    def _commit(self, member: _Member, step: _Step) -> str:
        offsets = {p: api.OffsetToCommit(offset=int(o)) for p, o in step.settings.items() if p.isdigit()}
        request = api.OffsetCommit(
            group_id=self._place.group,
            generation=step.generation(member),
            member_id=step.member_id(member),
            group_instance_id=member.instance,
            offsets={(self._place.topic, int(p)): offset for p, offset in offsets.items()},
            topic_ids=self._ids_of(step),
        )
        response = self._ask(member, step, request, api.OffsetCommitResponse)
        return _without_response(step) if response is None else _committed_with(response)

    def _committed(self, member: _Member, step: _Step) -> str:
        response = self._await(member, step, api.OffsetCommitResponse)
        return _without_response(step) if response is None else _committed_with(response)

    def _offsets(self, member: _Member, step: _Step) -> str:
        request = api.OffsetFetch(
            group_id=self._place.group, partitions=self._partitions(step.words), topic_ids=self._ids_of(step)
        )
        response = self._ask(member, step, request, api.OffsetFetchResponse)
        assert response is not None
        if response.error:
            return _name(response.error)
        return ", ".join(f"{p}: {_committed_at(each)}" for (_, p), each in sorted(response.offsets.items()))

    def _partitions(self, words: list[str]) -> tuple[api.Partition, ...]:
        return tuple((self._place.topic, int(word)) for word in words)

    def _ids_of(self, step: _Step) -> dict[str, UUID]:
        return {self._place.topic: self._id_of(step)} if "topic" in step.settings else {}

    def _id_of(self, step: _Step) -> UUID:
        return self._topic_ids[int(step.settings["topic"])] if "topic" in step.settings else api.NO_TOPIC_ID

    # -- logs

    def _list(self, member: _Member, step: _Step) -> str:
        requested = [word.split("@") for word in step.words]
        fences = {(self._place.topic, int(p)): _TIMESTAMPS[stamp] for p, stamp in requested}
        epochs = dict.fromkeys(fences, int(step.settings["epoch"])) if "epoch" in step.settings else {}
        request = api.ListOffsets(timestamps=fences, leader_epochs=epochs)
        response = self._ask(member, step, request, api.ListOffsetsResponse)
        assert response is not None
        return ", ".join(
            f"{p}: {_name(each.error) if each.error else each.offset}"
            for (_, p), each in sorted(response.offsets.items())
        )

    def _ends(self, member: _Member, step: _Step) -> str:
        epochs = {(self._place.topic, int(p)): int(epoch) for p, epoch in step.settings.items() if p.isdigit()}
        response = self._ask(member, step, api.OffsetForLeaderEpoch(epochs=epochs), api.OffsetForLeaderEpochResponse)
        assert response is not None
        return ", ".join(f"{p}: {_ended(each)}" for (_, p), each in sorted(response.ends.items()))

    def _fetch(self, member: _Member, step: _Step) -> str:
        epoch = int(step.settings.get("epoch", -1))
        requested = [self._at(word, step)._replace(leader_epoch=epoch) for word in step.words if "@" in word]
        request = api.Fetch(
            partitions=tuple(requested),
            max_wait=float(step.settings.get("wait", 0.0)),
            min_bytes=int(step.settings.get("min", 1)),
            max_bytes=1 << 20,
        )
        response = self._ask(member, step, request, api.FetchResponse, "fetch")
        return _without_response(step) if response is None else _fetched_with(response)

    def _fetched(self, member: _Member, step: _Step) -> str:
        response = self._await(member, step, api.FetchResponse)
        return _without_response(step) if response is None else _fetched_with(response)

    def _session(self, member: _Member, step: _Step) -> str:
        """A fetch in a session: "new" of what is named, "end", or the next one, of what has moved; forget=1,2."""
        named = [self._at(word, step) for word in step.words if "@" in word]
        requested = {(each.topic, each.partition): each for each in named}
        forgotten = [(self._place.topic, number) for number in _numbers(step.settings.get("forget", ""))]
        gone = [self._at(f"{number}@0", step) for _, number in forgotten]
        if "new" in step.words or "end" in step.words:
            member.fetch_epoch = -1 if "end" in step.words else 0
            member.known = {}
        member.known = {tp: each for tp, each in {**member.known, **requested}.items() if tp not in forgotten}
        request = api.Fetch(
            partitions=tuple(requested.values()),
            forgotten=tuple(gone),
            known=member.known,
            named="ids" not in step.words and "topic" not in step.settings,
            session_id=int(step.settings.get("id", member.fetch_session)),
            session_epoch=int(step.settings.get("epoch", member.fetch_epoch)),
            max_wait=float(step.settings.get("wait", 0.0)),
            min_bytes=1,
            max_bytes=1 << 20,
        )
        response = self._ask(member, step, request, api.FetchResponse, "fetch")
        return _without_response(step) if response is None else self._in_session(member, response)

    def _at(self, word: str, step: _Step) -> api.FetchPartition:
        number, offset = word.split("@")
        topic_id = self._id_of(step)
        return api.FetchPartition(topic=self._place.topic, partition=int(number), offset=int(offset), topic_id=topic_id)

    def _sessioned(self, member: _Member, step: _Step) -> str:
        response = self._await(member, step, api.FetchResponse)
        return _without_response(step) if response is None else self._in_session(member, response)

    def _in_session(self, member: _Member, response: api.FetchResponse) -> str:
        words = _fetched_with(response)
        if response.error:
            return words
        if member.fetch_epoch <= 0:
            member.fetch_session = response.session_id
            member.fetch_epoch = 1 if response.session_id else 0
            return f"{'session' if response.session_id else 'no session'}, {words}"
        member.fetch_epoch += 1
        if response.session_id == member.fetch_session:
            return words
        assert response.session_id == 0, "the session has another number"
        return f"the session is over, {words}"

    # -- the cluster

    def _metadata(self, member: _Member, step: _Step) -> str:
        names = tuple(self._place.topic if word == "topic" else word for word in step.words) or None
        response = self._ask(member, step, api.Metadata(topics=names), api.MetadataResponse)
        assert response is not None
        told = [(self._told(each.name), _topic(each, response)) for each in response.topics]
        return ", ".join(f"{name}: {words}" for name, words in sorted(told) if names or name == "topic")

    def _learns(self, member: _Member, step: _Step) -> str:
        response = self._ask(member, step, api.Metadata(topics=(self._place.topic,)), api.MetadataResponse)
        assert response is not None
        (found,) = response.topics
        if found.error:
            return _name(found.error)
        if found.topic_id not in self._topic_ids:
            self._topic_ids.append(found.topic_id)
        return f"topic {self._topic_ids.index(found.topic_id)}"

    def _told(self, topic: str) -> str:
        return "topic" if topic == self._place.topic else topic

    def _coordinator(self, member: _Member, step: _Step) -> str:
        request = api.FindCoordinator(group_id=self._place.group)
        response = self._ask(member, step, request, api.FindCoordinatorResponse)
        assert response is not None
        return _name(response.error)


# -- in words


def _without_response(step: _Step) -> str:
    return "waits" if "soon" in step.words else ""


def _name(code: int) -> str:
    return ErrorCode(code).name.upper()


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def _owned(metadata: bytes) -> str:
    return ",".join(str(each.partition) for each in read_subscription(metadata).owned)


def _synced_with(response: api.SyncGroupResponse) -> str:
    if response.error:
        return _name(response.error)
    if not response.assignment:
        return "assigned no bytes"
    read = read_assignment(response.assignment)
    assert write_assignment(read) == response.assignment, "other bytes than the leader sent"
    return f"assigned {','.join(str(each.partition) for each in read.partitions) or 'nothing'}"


def _committed_with(response: api.OffsetCommitResponse) -> str:
    if len(set(response.errors.values())) == 1:
        return _name(next(iter(response.errors.values())))
    return ", ".join(f"{p}: {_name(error)}" for (_, p), error in sorted(response.errors.items()))


def _committed_at(committed: api.CommittedOffset) -> str:
    if committed.error:
        return _name(committed.error)
    return "none" if committed == api.CommittedOffset() else f"{committed.offset}"


def _ended(end: api.EpochEnd) -> str:
    return _name(end.error) if end.error else f"epoch {end.leader_epoch} to {end.end_offset}"


def _fetched_with(response: api.FetchResponse) -> str:
    if response.error:
        return _name(response.error)
    told = [f"{p}: {_records(each)}" for (_, p), each in sorted(response.partitions.items())]
    return ", ".join(told) or "no partitions"


def _records(fetched: api.FetchedPartition) -> str:
    if fetched.error:
        return _name(fetched.error)
    piece = None if fetched.undecoded is None else fetched.undecoded.decode(1 << 20, 1 << 20, alone=True)
    chunk: Any = fetched.chunk if piece is None else piece.chunk
    what = f"{chunk.first_offset} to {chunk.last_offset}" if chunk else "nothing"
    return f"{what} of {fetched.log_start_offset} to {fetched.high_watermark}"


def _topic(topic: api.MetadataTopic, response: api.MetadataResponse) -> str:
    if topic.error:
        return _name(topic.error)
    nodes = {broker.node_id for broker in response.brokers}
    led = all(each.leader in nodes and not each.error and not each.leader_epoch for each in topic.partitions)
    return f"{len(topic.partitions)} partitions{', each led in epoch 0' if led else ''}"
