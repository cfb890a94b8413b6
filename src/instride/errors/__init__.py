"""Every error instride raises, in one tree.

    KafkaError
    ├── ConfigError (also ValueError)          a wrong, unknown or contradictory setting
    ├── ConsumerClosedError                    use after close
    ├── IllegalStateError (also RuntimeError)  the call does not fit what the consumer is doing
    ├── ConcurrentUseError                     two threads inside one consumer at once
    ├── ForkedConsumerError                    an open consumer used in a child process
    ├── WakeupError                            Consumer.wakeup() interrupted the call
    ├── NetworkThreadDiedError                 the network thread ended; __cause__ says why
    ├── KafkaTimeoutError (also TimeoutError)  the call's own time ended
    ├── TransportError                         no connection, or it broke
    │   └── NotKafkaError                      what responds there does not speak Kafka's protocol
    ├── ProtocolError                          bytes that break the protocol's rules
    │   ├── FrameTooLargeError                 a frame's stated length is over the bound, or negative
    │   ├── UnsupportedVersionError            broker and client share no version of a request
    │   └── CorruptRecordError                 a record batch that cannot be read
    ├── AuthenticationError                    the broker refused who we are, or did not prove who it is
    │   ├── TlsError                           TLS was not agreed: a certificate is refused, or no version in common
    │   └── (also BrokerResponseErrors)        UnsupportedSaslMechanismError, IllegalSaslStateError,
    │                                          SaslAuthenticationFailedError: what the broker refused
    ├── BrokerResponseError                    a broker responded with an error code
    │   ├── (one class for each code: see BROKER_ERRORS)
    │   ├── OffsetOutOfRangeError              the log has no such offset, and auto_offset_reset="none"
    │   │   ├── LogTruncationError             the log was cut behind what was read (an unclean leader election)
    │   │   └── TopicRecreatedError            the topic was deleted and recreated: the offset is of the old one
    │   └── CommitFailedError                  the group moved on; these offsets were not committed
    │       ├── StaleCommitError               of an assignment or a seek that is over
    │       └── CommitOvertakenError           a later commit went in its place: the group has that
    │           └── CommitRewindError          the group has a later offset already: refused
    ├── NoOffsetForPartitionError              no committed offset, and auto_offset_reset="none"
    ├── AssignorError                          a user's assignor returned what is no assignment
    ├── NoAssignorInCommonError                the group's members share no assignor or rebalance protocol
    ├── OffsetGapError                         a ledger was not told of records that the log has
    ├── DeserializationError                   a key or value deserializer raised; names the record
    ├── DeadLettersUnwrittenError              a Processor was stopped before it could write dead letters
    ├── DrainTimeoutError                      a Processor was stopped with records in progress after drain_timeout
    ├── HandlerCancelledError                  a Processor's handler awaited what somebody else cancelled
    ├── HandlerDiedError                       the process in which a Processor's handler was called has died
    ├── RecordTooLargeError                    an output or a dead letter is larger than the broker takes
    ├── StorePositionError                     a DatabaseStore's row was set back, or is beyond a cut log
    ├── SinkError                              the pipeline's output could not be written, committed or read
    │   ├── NotASinkError                      the folder holds something else, or its storage can hold no sink
    │   ├── WrongTopicError                    the sink holds another topic of the same name
    │   ├── CorruptManifestError               a manifest cannot be read, or the chain has a gap
    │   ├── MissingDataError                   a data file that was reported or listed is not there
    │   ├── SinkUnavailableError               the object store did not answer in time, or is busy
    │   └── SinkWriteError                     the disk is full, or refuses; nothing became visible
    ├── PipelineError                          the pipeline stopped; what was committed stays, nothing was skipped
    │   ├── RangeFailedError                   work on a range of offsets failed as often as it was to be tried
    │   └── OffsetsGoneError                   offsets that are due are not in the log any more
    ├── HistoryError (also ValueError)         instride.testing: a recorded history that cannot be read
    └── LocalKafkaError                        instride.testing: the Kafka for tests, used wrongly or broken
        ├── JavaNotFoundError                  no Java that can run a broker
        ├── KafkaNotFoundError                 no Apache Kafka here, and none could be fetched
        ├── ChecksumMismatchError              what was fetched is not what is pinned
        ├── BrokerStartError                   a broker ended while it was to start
        └── LocalKafkaTimeoutError             (also KafkaTimeoutError) it was not ready in time

Laws
1. Whether trying again can help is data. ``retriable``: the same call may succeed later. ``fatal``: repeating the call
   does not help until the cause is fixed.
2. A message names the setting, topic, partition or host concerned, and says what to do.
3. No message holds a secret.
4. A broker's error code has exactly one class; an unknown code raises the base class with that code.
"""

# What is inside:
# base, connection, offsets, commits, deserialization, processing, pipeline, testing: classes, by what they are about;
# broker, codes: a class and a row for each error code of Kafka; _quoting: texts of others, made fit.

from __future__ import annotations

from instride.errors import (
    base,
    broker,
    codes,
    commits,
    connection,
    deserialization,
    offsets,
    pipeline,
    processing,
    testing,
)
from instride.errors.base import *
from instride.errors.broker import *
from instride.errors.codes import *
from instride.errors.commits import *
from instride.errors.connection import *
from instride.errors.deserialization import *
from instride.errors.offsets import *
from instride.errors.pipeline import *
from instride.errors.processing import *
from instride.errors.testing import *

__all__: list[str] = []
__all__ += base.__all__
__all__ += broker.__all__
__all__ += codes.__all__
__all__ += commits.__all__
__all__ += connection.__all__
__all__ += deserialization.__all__
__all__ += offsets.__all__
__all__ += pipeline.__all__
__all__ += processing.__all__
__all__ += testing.__all__
