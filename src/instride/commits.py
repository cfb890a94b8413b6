"""What a commit says: offsets, each with the assignment in which its records were finished.

Laws
1. A snapshot never changes. It speaks of the moment in which it was taken.
2. Each entry carries its partition's assignment epoch and seek number. Who sends it drops the entries whose
   epoch or seek is over, so that no commit speaks of an earlier one.
3. Each entry is settled, partition by partition; what failed is the maker's to offer again.
4. A commit's result is true: it names what the group has because of it, and why it has the rest not.
5. What a user builds is checked by the verb that takes it (`_arguments.py`), entry by entry; what the library
   builds itself is not (`CheckedSnapshot`, there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Self

from instride.errors import KafkaError
from instride.records import OffsetAndMetadata, TopicPartition

__all__ = ["CommitEntry", "CommitOutcome", "CommitResult", "CommitSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """One partition's offset to commit.

    offset: of the next record to read.
    leader_epoch: of the last finished record, or -1 where unknown (KIP-320).
    metadata: the committer's own text.
    epoch, seek_number: those of the last finished record.
    """

    offset: int
    epoch: int
    seek_number: int
    leader_epoch: int = -1
    metadata: str = ""

    def to_offset_and_metadata(self) -> OffsetAndMetadata:
        """What the broker is told of it."""
        return OffsetAndMetadata(offset=self.offset, metadata=self.metadata, leader_epoch=self.leader_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What became of one commit. True only where all of it was committed; that of nothing is True.

    committed: what the group has now because of this commit.
    not_committed: why the group has not the others from it: `StaleCommitError` (an assignment or a seek that is over),
        `CommitOvertakenError` (the group has a later offset), or what a broker, or the time-out, said.
    """

    committed: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    not_committed: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return not self.not_committed


class CommitOutcome(Enum):
    """COMMITTED: the group has it, or a later offset of the same assignment and seek. FAILED: it has not, try again.
    REFUSED: the broker refuses it for good, as far as that is known: no hand-over is to wait for it. STALE: its epoch
    or seek is over.
    """

    COMMITTED = "committed"
    FAILED = "failed"
    REFUSED = "refused"
    STALE = "stale"


OnSettled = Callable[[TopicPartition, CommitEntry, CommitOutcome], None]
_NOTHING: Final[Mapping[TopicPartition, CommitEntry]] = MappingProxyType({})


class CommitSnapshot(Mapping[TopicPartition, OffsetAndMetadata]):
    """An immutable map of partitions to the offsets to commit, as `Consumer.commit` takes it.

    `entries` tells more of each partition: the assignment epoch and seek number. An empty snapshot is falsy,
    and committing it does nothing. Any thread may use it.
    """

    __slots__ = ("_entries", "_on_settled")

    def __init__(
        self,
        entries: Mapping[TopicPartition, CommitEntry] = _NOTHING,
        on_settled: OnSettled | None = None,
    ) -> None:
        """on_settled: called by `settle`, on its caller's thread; must be thread-safe and must not raise."""
        self._entries: Mapping[TopicPartition, CommitEntry] = MappingProxyType(
            {_partition(key): entry for key, entry in entries.items()}
        )
        self._on_settled = on_settled

    @property
    def entries(self) -> Mapping[TopicPartition, CommitEntry]:
        """The same partitions, with epochs and seek numbers."""
        return self._entries

    def settle(
        self,
        partition: TopicPartition,
        entry: CommitEntry,
        *,
        committed: bool,
        stale: bool = False,
        refused: bool = False,
    ) -> None:
        """Tell the maker what became of one entry. The consumer calls it once for each; thread-safe.

        committed: the group has its offset or a later one. False when the response was an error, none came, or the
            entry was not sent.
        stale: it was not sent, and never will be, because its epoch or seek is over.
        refused: the response was an error that no retry mends, such as that of a topic that is gone.
        """
        if self._on_settled is None:
            return
        failed = CommitOutcome.REFUSED if refused else CommitOutcome.FAILED
        outcome = CommitOutcome.COMMITTED if committed else failed
        self._on_settled(partition, entry, CommitOutcome.STALE if stale else outcome)

    def __getitem__(self, partition: TopicPartition) -> OffsetAndMetadata:
        return self._entries[partition].to_offset_and_metadata()

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Raises TypeError for a snapshot whose maker is to hear what became of it: in another process it would not."""
        if self._on_settled is not None:
            raise TypeError(
                "this CommitSnapshot cannot be pickled: the ledger that made it is to hear what became of it; commit "
                "it in this process, or send dict(snapshot.entries) and build CommitSnapshot(entries) of that"
            )
        return CommitSnapshot, (dict(self._entries),)

    def __repr__(self) -> str:
        offsets = ", ".join(f"{partition}: {entry.offset}" for partition, entry in sorted(self._entries.items()))
        return f"CommitSnapshot({offsets})"


def _partition(key: Any) -> TopicPartition:
    """A pair is taken for one; whatever else it is, `_arguments.py` refuses by name."""
    is_pair = isinstance(key, tuple) and len(key) == 2 and not isinstance(key, TopicPartition)
    found: TopicPartition = TopicPartition(*key) if is_pair else key
    return found
