"""What responds there, if it is not Kafka: a guess from its first bytes, for a message that helps."""

from __future__ import annotations

from typing import Final

from instride.errors import NotKafkaError

__all__ = ["not_kafka"]

_SHOWN_BYTES: Final = 40

_WEB: Final = "an HTTP server. Is this the port of a REST proxy, a schema registry, a metrics page or a console?"
_TLS: Final = (
    "a TLS listener, which refuses plain text. Use the broker's PLAINTEXT listener,"
    " or set security_protocol for this one."
)

# The first bytes of those whose ports are taken for a broker's most often.
_GREETINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"HTTP/", _WEB),
    (b"<", _WEB),
    (b"\x15\x03", _TLS),  # an alert, since our request is no record of TLS
    (b"\x16\x03", _TLS),
    (b"SSH-", "an SSH server."),
    (b"AMQP", "an AMQP broker such as RabbitMQ."),
    (b"RFB ", "a VNC server."),
    (b"-ERR", "a Redis server (or a POP3 one)."),
    (b"+OK", "a POP3 server (or a Redis one)."),
    (b"220", "an SMTP or FTP server."),
    (b"E\x00\x00\x00", "a PostgreSQL server."),  # its error message, with a length of less than 16 MiB
)


def not_kafka(start: bytes) -> NotKafkaError:
    """The error for a connection whose first bytes are `start`."""
    return NotKafkaError(
        f"what responds does not speak Kafka's protocol: it looks like {_guess(start)}"
        f" Its first bytes were {start[:_SHOWN_BYTES]!r}."
    )


def _guess(start: bytes) -> str:
    for greeting, guess in _GREETINGS:
        if start.startswith(greeting):
            return guess
    return "something else. Check the host and the port."
