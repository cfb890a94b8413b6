"""What ends an attempt of a `Processor` from outside of its handler."""

from __future__ import annotations

from instride.errors.base import KafkaError

__all__ = [
    "DeadLettersUnwrittenError",
    "DrainTimeoutError",
    "HandlerCancelledError",
    "HandlerDiedError",
    "RecordTooLargeError",
    "StorePositionError",
]


class DeadLettersUnwrittenError(KafkaError):
    """A `Processor` was stopped while dead letters of its could not be written, or its store could not be told that
    they were. What kept one of them is the cause.

    No commit covers their records: whoever runs next, after a restart say, writes these letters, if need be once more.
    """

    retriable = True


class DrainTimeoutError(KafkaError):
    """A `Processor` was stopped, and records were still in progress when its `drain_timeout` was over.

    No commit covers these records: whoever runs next handles them again, though their handlers may have done their work
    by then. Let `drain_timeout` be longer than a record is in progress. After a `cancel`, or a second signal, there is
    no such error.
    """

    retriable = True


class HandlerCancelledError(KafkaError):
    """A handler of a `Processor` awaited what somebody else cancelled: a task or a future that is not its own.

    Nobody has cancelled the handler. So the attempt has failed, as by any other error; the CancelledError is the cause.
    """

    retriable = True


class HandlerDiedError(KafkaError):
    """The process in which a handler was called has died: by a signal, for want of memory, or by its own end.

    A `Processor` with processes replaces it and calls the handler again, whatever `Retry.on` says. It counts as an
    attempt of that record alone, which has three in any case.
    """

    retriable = True


class RecordTooLargeError(KafkaError):
    """What a `Processor` was to produce is larger than the broker takes (`max.message.bytes` of the topic).

    A `produce=` of your own may raise it: of a dead letter the processor then produces a smaller form.
    """


class StorePositionError(KafkaError):
    """A partition's row in the database of a `DatabaseStore` was set back while the processor ran; or the log was cut
    below it; or the database's driver does not say whether the row was moved. The message says which, and what to do.

    The processor stops, whatever `on_failure` says: going on would leave out records. If the row was set back, and the
    processor is started again, it begins at the row.
    """
