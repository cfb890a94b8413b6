"""All I/O is the network thread's, whatever the application's threads call."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from instride import Consumer, TopicPartition
from instride._net.thread import NetworkThread
from instride._net.transport import Transport
from instride.errors import KafkaTimeoutError

TP = TopicPartition("t", 0)


@pytest.mark.requirement("threading/1")
def test_no_thread_but_its_own_touches_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    touched: set[int] = set()

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Transport, *arguments: Any, **options: Any) -> Any:
            touched.add(threading.get_ident())
            return method(self, *arguments, **options)

        return call

    for name in ("__init__", "send", "writable", "readable", "close"):
        monkeypatch.setattr(Transport, name, watched(getattr(Transport, name)))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with Consumer(bootstrap_servers=address, group_id="g", request_timeout=0.2, fetch_max_wait=0.1) as consumer:
            assert not touched, "building one does no I/O"
            consumer.subscribe(["t"])
            consumer.poll(timeout=0.3)
            for call in (consumer.end_offsets, lambda tps, **options: consumer.committed(*tps, **options)):
                with pytest.raises(KafkaTimeoutError):
                    call([TP], timeout=0.3)
            thread = network_thread(consumer)
            consumer.close(timeout=0.2)
    assert touched == {thread}


def network_thread(consumer: Consumer) -> int | None:
    found: Any = consumer._driver._thread
    assert isinstance(found, NetworkThread)
    return found._thread.ident
