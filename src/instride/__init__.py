"""instride: a Kafka consumer that keeps its stride through rebalances (KIP-983)."""

# What is inside:
# consumer, aio, _consumer_base           `Consumer`, `AsyncConsumer`; the methods that both have
# config, errors, records,
# commits, listeners, interceptors,
# deserializers, assignors, metrics,
# telemetry, observers                    what a user of these imports
# ledger, _processing                     `OffsetLedger`; `Processor` and `PartitionExecutor`
# _core, _wire                            decisions, and bytes, without I/O
# _net                                    the network thread, sockets, TLS, credentials
# spark, testing, _cli                    on Spark; for tests; the command `instride`

from instride._net.oauth import OAuthClientCredentials
from instride._processing.async_store import AsyncDatabaseStore
from instride._processing.attempts import Attempt, current_attempt
from instride._processing.breaker import CircuitBreaker
from instride._processing.dead_letters import DeadLetter
from instride._processing.engine import Tally
from instride._processing.health import Health, StuckRecord, UnwrittenLetter
from instride._processing.outputs import OutputRecord
from instride._processing.partition_executor import PartitionExecutor
from instride._processing.processor import Processor
from instride._processing.processor_kit import ProcessorKit
from instride._processing.retries import DeadLetterRecord, Retry, RetryRecord, SkipRecord
from instride._processing.running_processor import RunningProcessor
from instride._processing.store import DatabaseStore
from instride._wire.sasl.oauthbearer import OAuthToken
from instride.aio import AsyncConsumer
from instride.commits import CommitEntry, CommitOutcome, CommitResult, CommitSnapshot
from instride.config import ConsumerConfig, ConsumerSettings, RunningSettings, UntypedSettings
from instride.consumer import Consumer, RangeConsumer
from instride.consumer_records import Changes, ConsumerRecords, Stretch
from instride.deserializers import SerializationContext
from instride.errors import KafkaError
from instride.interceptors import ConsumerInterceptor
from instride.ledger import OffsetLedger, TrackedRecord, WatchedFuture
from instride.listeners import AsyncRebalanceListener, RebalanceListener
from instride.records import (
    ConsumerRecord,
    GroupMetadata,
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetRange,
    PartitionInfo,
    TopicPartition,
)

__all__ = [
    "AsyncDatabaseStore",
    "Attempt",
    "AsyncConsumer",
    "AsyncRebalanceListener",
    "Changes",
    "CircuitBreaker",
    "CommitEntry",
    "CommitOutcome",
    "CommitResult",
    "CommitSnapshot",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerRecords",
    "ConsumerSettings",
    "current_attempt",
    "DeadLetter",
    "DeadLetterRecord",
    "GroupMetadata",
    "Health",
    "KafkaError",
    "Node",
    "OAuthClientCredentials",
    "OAuthToken",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetLedger",
    "OffsetRange",
    "OutputRecord",
    "PartitionExecutor",
    "PartitionInfo",
    "DatabaseStore",
    "Processor",
    "ProcessorKit",
    "RangeConsumer",
    "RebalanceListener",
    "Retry",
    "RetryRecord",
    "RunningProcessor",
    "RunningSettings",
    "SerializationContext",
    "SkipRecord",
    "Stretch",
    "StuckRecord",
    "UnwrittenLetter",
    "Tally",
    "TopicPartition",
    "TrackedRecord",
    "UntypedSettings",
    "WatchedFuture",
]
