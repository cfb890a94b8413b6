"""What a history is to be: members, records, timings and faults. `planning` makes such plans by chance.

Laws
1. A plan is a value.
2. Faults end before `quiet_after`; from then on the group has time to finish all its work.
3. The first member stays to the end, so that somebody can.
4. Each member has a name of its own: its events in the history are known by it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from instride._core.network.actions import Role
from instride.records import TopicPartition

__all__ = ["Fault", "FaultKind", "HistoryKind", "LoopKind", "MemberPlan", "Plan"]

LoopKind = Literal["flagship", "changes", "wait", "synchronous", "auto-commit", "immediate", "executor", "unruly"]
FaultKind = Literal[
    "cut",
    "cut within a frame",
    "stall",
    "suspend",
    "pause",
    "crash",
    "wakeup",
    "wakeups",
    "move coordinator",
    "move leader",
    "down",
    "slow node",
    "isolate",
    "part from coordinator",
    "part from all",
    "absent",
    "nervous",
    "narrow",
    "resubscribe",
    "resubscribe in haste",
    "refuse leaves",
    "refuse commits",
    "refuse group",
    "refuse joins",
    "refuse partition",
    "refuse topic",
]
HistoryKind = Literal["calm", "storm", "slow", "faults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """Times are virtual seconds. leaves_at: infinite for one that stays. limit: most records of a poll.

    most_in_flight: above it, it pauses. gives_up_round: a wakeup ends its round, instead of going on without records.
    flickers: how likely it pauses and resumes everything in one breath. pauses: how likely it pauses one partition in a
    round; it resumes them one by one. seeks: how likely it reads some of what a poll returned again. rewinds: where a
    handler or a commit fails it goes back to what is committed. stays: it does neither, nor commits a number of its
    own: such a place has no leader epoch, and is of no topic. assignors: in its order of preference.
    instance: of a static member. One that comes later with the same is its restart, or a twin that takes its place.

    Of an unruly user: verbs: how likely he calls some after a poll, and in a listener; listens: whether he has one;
    ends: how likely a verb is unsubscribe or close. pairs: how likely he does something after a poll for a pair of
    verbs in a state of partitions that he has in mind. interrupts, line_interrupts: how likely a call ends in an
    exception at one of its waits, in a listener or in a deserializer; at one of its lines. raises: how likely
    a listener ends in an error of its own. looks: how likely he looks at positions within a poll.
    signals: how likely a signal comes at a line of a call, whose handler calls verbs. commits_back: how likely a commit
    is one that may go back, to a record that he was returned. immediate, auto_commits: his settings.
    by_hand: how likely he assigns other partitions after a poll, of a share that is his own; 0: he subscribes.
    goes_over: he does both in turn, by an unsubscribe. hasty: how likely he gives up what he assigns no more, instead
    of committing it before.
    """

    name: str
    joins_at: float = 0.0
    leaves_at: float = float("inf")
    loop: LoopKind = "flagship"
    poll_timeout: float = 0.3
    workers: int = 4
    limit: int = 500
    most_in_flight: int = 1_000_000
    gives_up_round: bool = False
    flickers: float = 0.0
    pauses: float = 0.0
    seeks: float = 0.0
    rewinds: bool = False
    stays: bool = False
    assignors: tuple[str, ...] = ("cooperative-sticky",)
    instance: str | None = None
    verbs: float = 0.0
    listens: bool = False
    ends: float = 0.0
    pairs: float = 0.0
    interrupts: float = 0.0
    line_interrupts: float = 0.0
    raises: float = 0.0
    looks: float = 0.0
    signals: float = 0.0
    commits_back: float = 0.0
    immediate: bool = False
    auto_commits: bool = False
    by_hand: float = 0.0
    goes_over: bool = False
    hasty: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """member: its place in the plan, or a partition's number. seconds: how long it lasts. role: of the connection
    concerned. code: what is said in a refusal (`refusals`)."""

    time: float
    kind: FaultKind
    member: int = 0
    seconds: float = 0.0
    role: Role = Role.DATA
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A history's plan. Times are virtual seconds.

    seed: of all chance that is left. kind: how strictly `check` judges; "faults" asks least, "calm" most.
    topics: "t", or "t" and "u". partitions: of all topics together; they are numbered through.
    produced: (time, number of the partition, records). transactions: (time, partition, records, seconds that it is
    open, whether it is committed), read by members that read committed records only. compactions: (time, partition).
    retentions: (time, partition, how many offsets before the log's stable end are left). truncations: (time, partition,
    how many offsets at the log's end are lost), each with an unclean election of another leader. recreations: (time,
    partition, seconds): its topic is deleted, and created again under the same name so many seconds later.
    quiet_after: no fault, and no slow handler, after it. ends_at: the history's end, if it does not end by itself.
    latency: (least, most) of one way. handler: (shortest, longest, longest of a slow one, chance of that).
    failing: chance that a handler fails. assigning: (shortest, longest) time that a leader's assignor takes.
    batches: records come in batches of several sizes, some larger than a consumer's buffer, which are decoded when
    there is capacity. framed: what connections carry are bytes in frames that may be cut anywhere. reset: what members
    do where nothing is committed. start_offsets: whether they commit where they began at a reset though they have
    committed nothing else.
    The time-outs are those of `ConsumerConfig`.
    """

    members: tuple[MemberPlan, ...]
    seed: int = 0
    kind: HistoryKind = "faults"
    nodes: int = 1
    topics: int = 1
    partitions: int = 4
    produced: tuple[tuple[float, int, int], ...] = ()
    transactions: tuple[tuple[float, int, int, float, bool], ...] = ()
    compactions: tuple[tuple[float, int], ...] = ()
    retentions: tuple[tuple[float, int, int], ...] = ()
    truncations: tuple[tuple[float, int, int], ...] = ()
    recreations: tuple[tuple[float, int, float], ...] = ()
    faults: tuple[Fault, ...] = ()
    quiet_after: float = 10.0
    ends_at: float = 100.0
    latency: tuple[float, float] = (0.001, 0.005)
    handler: tuple[float, float, float, float] = (0.001, 0.01, 0.01, 0.0)
    failing: float = 0.0
    assigning: tuple[float, float] = (0.0, 0.0)
    initial_delay: float = 0.0
    session_timeout: float = 2.0
    heartbeat_interval: float = 0.5
    max_poll_interval: float = 6.0
    commit_budget: float = 0.5
    request_timeout: float = 1.5
    fetch_max_wait: float = 0.5
    default_api_timeout: float = 5.0
    auto_commit_interval: float = 0.5
    framed: bool = False
    batches: bool = False
    prefetch: Literal["bytes", "total", "partition"] = "bytes"
    fairness: Literal["greedy", "proportional"] = "greedy"
    reset: Literal["earliest", "latest"] = "earliest"
    start_offsets: bool = False

    def __post_init__(self) -> None:
        """Law 4: a ValueError."""
        twice = [name for name, count in Counter(each.name for each in self.members).items() if count > 1]
        if twice:
            raise ValueError(f"a plan has two members called {twice[0]!r}: each needs a name of its own")

    def partition(self, number: int) -> TopicPartition:
        """Partitions are numbered over all topics."""
        return TopicPartition("tu"[number % self.topics], number // self.topics)

    def topic_sizes(self) -> dict[str, int]:
        """Topic -> number of partitions."""
        sizes = Counter(self.partition(number).topic for number in range(self.partitions))
        return dict(sorted(sizes.items()))
