"""The small admin client against a scripted broker: what a real one does not say on demand."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
from kio.schema.delete_topics.v5.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

from instride.errors import UnknownTopicOrPartitionError
from instride.testing._kafka.admin import Admin


@contextmanager
def broker(error: ErrorCode, heard: list[DeleteTopicsRequest]) -> Iterator[int]:
    """Its port. It responds once, to a DeleteTopics, with this error."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as sent:
            frame = sent.read(struct.unpack(">i", sent.read(4))[0])
            _, size = entity_reader(DeleteTopicsRequest.__header_schema__)(frame, 0)
            request, _ = entity_reader(DeleteTopicsRequest)(frame, size)
            heard.append(request)
            results = tuple(
                DeletableTopicResult(name=name, error_code=error, error_message=None) for name in request.topic_names
            )
            body = io.BytesIO()
            header = DeleteTopicsResponse.__header_schema__(correlation_id=i32(1))
            entity_writer(type(header))(body, header)
            response = DeleteTopicsResponse(throttle_time=i32Timedelta.parse(timedelta()), responses=results)
            entity_writer(DeleteTopicsResponse)(body, response)
            connection.sendall(struct.pack(">i", len(body.getvalue())) + body.getvalue())

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join()


def test_a_broker_that_misses_the_end_of_a_deletion_responds_after_seconds() -> None:
    """Kafka 2.8.2 did so in one of a hundred deletions: then it holds the response until the request's time is over."""
    heard: list[DeleteTopicsRequest] = []
    with broker(ErrorCode.request_timed_out, heard) as port, Admin(port, timeout=120.0) as admin:
        admin.delete_topics(["orders"])
    (request,) = heard
    assert request.topic_names == (TopicName("orders"),)
    assert request.timeout.total_seconds() == 5.0


def test_a_topic_that_is_not_there_is_told() -> None:
    with (
        broker(ErrorCode.unknown_topic_or_partition, []) as port,
        Admin(port, timeout=120.0) as admin,
        pytest.raises(UnknownTopicOrPartitionError, match="'orders' was not deleted"),
    ):
        admin.delete_topics(["orders"])
