"""A small admin client over one blocking socket: enough to make topics and to see that a cluster is ready.

Laws
1. It speaks only to brokers that this process started itself. So it reads their responses with kio's reader, which must
   never be given bytes of a stranger.
2. Message versions are fixed; every broker from 2.7 to 4.x speaks them.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from kio.schema.create_topics.v5 import request as create_request
from kio.schema.create_topics.v5.response import CreateTopicsResponse
from kio.schema.delete_topics.v5 import request as delete_request
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v5 import request as list_request
from kio.schema.list_offsets.v5.response import ListOffsetsResponse
from kio.schema.metadata.v9 import request as metadata_request
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from instride.errors import BrokerResponseError, TransportError, error_for_code

__all__ = ["Admin"]

_CLIENT: Final = "instride-testing"
_LENGTH: Final = struct.Struct(">i")
_EARLIEST: Final = -2
# Kafka 2.8 with a ZooKeeper sometimes misses the end of a deletion, and responds only when the request's time is over.
_DELETING: Final = i32Timedelta.parse(timedelta(seconds=5))


class Admin:
    """One connection to one broker. Not for use by two threads at once.

    Every call raises TransportError when the connection breaks or its time ends, and an error of the broker's code.
    """

    def __init__(self, port: int, *, timeout: float) -> None:
        """Connect to 127.0.0.1. timeout: seconds for connecting, and for every read."""
        self._timeout = timeout
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout)
        except OSError as error:
            raise TransportError(f"no connection to 127.0.0.1:{port}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def metadata(self, topics: Sequence[str] | None = ()) -> MetadataResponse:
        """The cluster as this broker sees it: its live brokers, and the topics named (None: all)."""
        names = (
            None
            if topics is None
            else tuple(metadata_request.MetadataRequestTopic(name=TopicName(name)) for name in topics)
        )
        request = metadata_request.MetadataRequest(
            topics=names,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response: MetadataResponse = self._call(request, MetadataResponse)
        return response

    def leads(self, partitions: Mapping[str, Sequence[int]]) -> bool:
        """Whether this broker serves all of these as their leader. Metadata names a leader before it does."""
        request = list_request.ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=tuple(
                list_request.ListOffsetsTopic(name=TopicName(name), partitions=tuple(map(_earliest, numbers)))
                for name, numbers in partitions.items()
            ),
        )
        response: ListOffsetsResponse = self._call(request, ListOffsetsResponse)
        return all(part.error_code is ErrorCode.none for topic in response.topics for part in topic.partitions)

    def create_topics(
        self, topics: Mapping[str, int], *, replication: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create topics (name -> number of partitions), all with the same replication and settings."""
        entries = tuple(
            create_request.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()
        )
        creatable = tuple(
            create_request.CreatableTopic(
                name=TopicName(name),
                num_partitions=i32(count),
                replication_factor=i16(replication),
                assignments=(),
                configs=entries,
            )
            for name, count in topics.items()
        )
        request = create_request.CreateTopicsRequest(
            topics=creatable, timeout=i32Timedelta.parse(timedelta(seconds=self._timeout)), validate_only=False
        )
        response: CreateTopicsResponse = self._call(request, CreateTopicsResponse)
        for topic in response.topics:
            _check(topic.error_code, f"topic {topic.name!r} was not created: {topic.error_message}")

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Begin to delete them. The caller asks for the metadata until they are gone."""
        names = tuple(map(TopicName, topics))
        request = delete_request.DeleteTopicsRequest(topic_names=names, timeout=_DELETING)
        response: DeleteTopicsResponse = self._call(request, DeleteTopicsResponse)
        for result in response.responses:
            if result.error_code is ErrorCode.request_timed_out:
                continue  # the deletion goes on
            _check(result.error_code, f"topic {result.name!r} was not deleted: {result.error_message}")

    def _call(self, request: Any, response: Any) -> Any:
        header = request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(1),
            client_id=_CLIENT,
        )
        with io.BytesIO() as buffer:
            entity_writer(type(header))(buffer, header)
            entity_writer(type(request))(buffer, request)
            frame = buffer.getvalue()
        try:
            self._socket.sendall(_LENGTH.pack(len(frame)) + frame)
            data = self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0])
        except OSError as error:
            raise TransportError(f"the broker did not respond to {type(request).__name__}: {error!r}") from error
        _, size = entity_reader(response.__header_schema__)(data, 0)
        entity, _ = entity_reader(response)(data, size)
        return entity

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            data += part
        return bytes(data)


def _earliest(number: int) -> list_request.ListOffsetsPartition:
    return list_request.ListOffsetsPartition(
        partition_index=i32(number), current_leader_epoch=i32(-1), timestamp=i64(_EARLIEST)
    )


def _check(code: ErrorCode, message: str) -> None:
    if code is not ErrorCode.none:
        error: BrokerResponseError = error_for_code(int(code), f"{message} ({code.name})")
        raise error
