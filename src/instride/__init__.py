"""instride: a Kafka consumer that keeps its stride through rebalances (KIP-983)."""

from instride.commits import CommitEntry, CommitResult, CommitSnapshot
from instride.config import ConsumerConfig
from instride.consumer import Consumer, RangeConsumer
from instride.consumer_records import Changes, ConsumerRecords
from instride.core.application.listener import RebalanceListener
from instride.deserializers import SerializationContext
from instride.errors import KafkaError
from instride.interceptors import ConsumerInterceptor
from instride.ledger import OffsetLedger
from instride.net.oauth import OAuthClientCredentials
from instride.processing.partition_executor import PartitionExecutor
from instride.records import (
    GroupMetadata,
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetRange,
    PartitionInfo,
    TopicPartition,
)
from instride.wire.decoder import ConsumerRecord
from instride.wire.sasl.oauthbearer import OAuthToken

__all__ = [
    "Changes",
    "CommitEntry",
    "CommitResult",
    "CommitSnapshot",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerRecords",
    "GroupMetadata",
    "KafkaError",
    "Node",
    "OAuthClientCredentials",
    "OAuthToken",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetLedger",
    "OffsetRange",
    "PartitionExecutor",
    "PartitionInfo",
    "RangeConsumer",
    "RebalanceListener",
    "SerializationContext",
    "TopicPartition",
]
