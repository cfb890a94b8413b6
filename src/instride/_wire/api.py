"""Kafka's requests and responses as the core speaks of them: free of versions, bytes and libraries.

Laws
1. A field has one meaning in every version. What a version cannot say takes the default given here.
2. Error codes are plain numbers as the broker sent them; 0 is none. Unknown ones pass through.
3. Each request class names its response class in ``RESPONSES``; the codec of a pair is `_wire.message_codecs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from instride._wire.sasl import messages as sasl

if TYPE_CHECKING:
    from instride._wire.record_chunk import RecordChunk, UndecodedRecords

__all__ = [
    "RESPONSES",
    "NO_TOPIC_ID",
    "Response",
    "ApiVersions",
    "ApiVersionsResponse",
    "Broker",
    "CommittedOffset",
    "EpochEnd",
    "Fetch",
    "FetchResponse",
    "FetchPartition",
    "FetchedPartition",
    "FindCoordinator",
    "FindCoordinatorResponse",
    "GroupMember",
    "GroupProtocol",
    "Heartbeat",
    "HeartbeatResponse",
    "JoinGroup",
    "JoinGroupResponse",
    "DescribeGroup",
    "DescribeGroupResponse",
    "LeaveGroup",
    "LeaveGroupResponse",
    "ListOffsets",
    "ListOffsetsResponse",
    "ListedOffset",
    "Metadata",
    "MetadataResponse",
    "MetadataPartition",
    "MetadataTopic",
    "OffsetCommit",
    "OffsetCommitResponse",
    "OffsetFetch",
    "OffsetFetchResponse",
    "OffsetForLeaderEpoch",
    "OffsetForLeaderEpochResponse",
    "OffsetToCommit",
    "Request",
    "SyncGroup",
    "SyncGroupResponse",
]

NO_TOPIC_ID: Final = UUID(int=0)

# A partition as the wire knows it: topic name and number. `records.TopicPartition` is such a tuple.
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersions:
    """Which requests in which versions a broker speaks. The first request on every connection (KIP-511)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    error: int = 0
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """api key -> (lowest, highest) version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """topics: names, or None for all of the cluster's topics. Never creates a topic."""

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPartition:
    partition: int
    error: int = 0
    leader: int = -1
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopic:
    name: str
    error: int = 0
    topic_id: UUID = NO_TOPIC_ID
    is_internal: bool = False
    partitions: tuple[MetadataPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """error: the top-level code (version 13 and later), such as REBOOTSTRAP_REQUIRED."""

    brokers: tuple[Broker, ...] = ()
    topics: tuple[MetadataTopic, ...] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    error: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorResponse:
    error: int = 0
    error_message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProtocol:
    """name: the assignor's. metadata: its ConsumerProtocolSubscription bytes."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """session_timeout, rebalance_timeout: seconds. reason: cut to 255 characters by the codec (KIP-800)."""

    group_id: str
    session_timeout: float
    rebalance_timeout: float
    member_id: str
    protocols: tuple[GroupProtocol, ...]
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    metadata: bytes
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
    error: int = 0
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """assignments: member id -> ConsumerProtocolAssignment bytes; empty unless this member leads."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    protocol: str = ""
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    error: int = 0
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """throttle_time: seconds for which the broker wants no heartbeat, since a quota is used up (KIP-219)."""

    error: int = 0
    throttle_time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    group_id: str
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """error: the top-level code or, where that is 0, the one of our member."""

    error: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """What a group is at this moment, for who cannot join it."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupResponse:
    """protocol_type: "consumer", or what another kind of program uses. protocol: the name of the assignor chosen; ""
    while a rebalance has not chosen one. clients: the members' client ids, as they joined."""

    error: int = 0
    protocol_type: str = ""
    protocol: str = ""
    clients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """generation -1 and member id "" for a consumer that is in no group's membership.

    topic_ids: by topic name, for versions that name topics by id (10 and later); where one is missing
    the codec uses a version that names topics.
    """

    group_id: str
    generation: int
    member_id: str
    offsets: dict[Partition, OffsetToCommit]
    group_instance_id: str | None = None
    topic_ids: dict[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponse:
    errors: dict[Partition, int] = field(default_factory=dict)
    """The code of every partition that was requested (0: committed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    """require_stable: wait for transactional commits to settle (KIP-447)."""

    group_id: str
    partitions: tuple[Partition, ...]
    require_stable: bool = True
    topic_ids: dict[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """offset -1: none is committed."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse:
    error: int = 0
    offsets: dict[Partition, CommittedOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsets:
    """timestamps: milliseconds, or -1 latest, -2 earliest.

    read_committed: latest is the last stable offset.
    """

    timestamps: dict[Partition, int]
    leader_epochs: dict[Partition, int] = field(default_factory=dict)
    read_committed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    error: int = 0
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse:
    offsets: dict[Partition, ListedOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpoch:
    """Where an epoch ends in the log (KIP-320). leader_epochs: the present leader's, as the client knows it."""

    epochs: dict[Partition, int]
    leader_epochs: dict[Partition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """leader_epoch: the largest that the log has up to the requested one. end_offset: the offset after its last
    record. Both -1 where the log knows of none.
    """

    error: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    ends: dict[Partition, EpochEnd] = field(default_factory=dict)


class FetchPartition(NamedTuple):
    """topic_id: from metadata; NO_TOPIC_ID makes the codec use a version that names topics.

    leader_epoch: the leader's own. passed_epoch: that of the batch before `offset`; the broker is not told.
    A tuple: of each partition that moved one is made and compared, in every fetch.
    """

    topic: str
    partition: int
    offset: int
    topic_id: UUID = NO_TOPIC_ID
    leader_epoch: int = -1
    max_bytes: int = 1 << 20
    passed_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """max_wait: seconds. session_id 0 with session_epoch -1 is a fetch without a session (KIP-227).

    known: all that the session has, of which `partitions` is the part that is new or has moved; may be empty for a
    fetch that names everything. topics: the names of what is known, by the bytes of their ids. forgotten: what the
    session is to lose. named: name topics by name even where ids are known.
    max_decompressed_bytes: bound of a record batch in the response; the broker is not told.
    most_bytes: a longer response is not received, for want of memory; its connection fails. 0: what is bounded anyway.
    """

    partitions: tuple[FetchPartition, ...]
    max_wait: float
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    session_id: int = 0
    session_epoch: int = -1
    forgotten: tuple[FetchPartition, ...] = ()
    known: Mapping[Partition, FetchPartition] = field(default_factory=dict)
    topics: Mapping[bytes, str] = field(default_factory=dict)
    named: bool = False
    rack: str = ""
    max_decompressed_bytes: int = 64 << 20
    most_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """What a broker's response says of one partition.

    high_watermark, last_stable_offset, log_start_offset: -1 where unknown.
    chunk: its records from the fetch offset on, or None where there are none to return.
    next_offset: where to fetch next (after the last complete batch, also when no record of it is returned).
    leader_epoch: where there is no chunk, of that batch, or -1.
    corrupt: set where the bytes after `chunk` cannot be read; the partition is to fail.
    undecoded: what comes from `next_offset` on and is not decoded yet. (Of a real response nothing is; simulated ones
        have a chunk instead.)
    """

    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    preferred_read_replica: int = -1
    chunk: RecordChunk | None = None
    next_offset: int = -1
    leader_epoch: int = -1
    corrupt: Exception | None = None
    undecoded: UndecodedRecords | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """throttle_time: seconds for which the broker wants no fetch, since a quota is used up (KIP-219).

    by_id: whether it names topics by their ids, as the request did (KIP-516); else one may be another of its name.
    """

    error: int = 0
    session_id: int = 0
    partitions: dict[Partition, FetchedPartition] = field(default_factory=dict)
    throttle_time: float = 0.0
    by_id: bool = False


Request = (
    ApiVersions
    | Metadata
    | FindCoordinator
    | JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | DescribeGroup
    | OffsetCommit
    | OffsetFetch
    | ListOffsets
    | OffsetForLeaderEpoch
    | Fetch
    | sasl.SaslRequest
)
Response = (
    ApiVersionsResponse
    | MetadataResponse
    | FindCoordinatorResponse
    | JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | DescribeGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | ListOffsetsResponse
    | OffsetForLeaderEpochResponse
    | FetchResponse
    | sasl.SaslResponse
)

RESPONSES: Final[dict[type[Request], type[Response]]] = {
    ApiVersions: ApiVersionsResponse,
    Metadata: MetadataResponse,
    FindCoordinator: FindCoordinatorResponse,
    JoinGroup: JoinGroupResponse,
    SyncGroup: SyncGroupResponse,
    Heartbeat: HeartbeatResponse,
    LeaveGroup: LeaveGroupResponse,
    DescribeGroup: DescribeGroupResponse,
    OffsetCommit: OffsetCommitResponse,
    OffsetFetch: OffsetFetchResponse,
    ListOffsets: ListOffsetsResponse,
    OffsetForLeaderEpoch: OffsetForLeaderEpochResponse,
    Fetch: FetchResponse,
    sasl.SaslHandshake: sasl.SaslHandshakeResponse,
    sasl.SaslAuthenticate: sasl.SaslAuthenticateResponse,
}
