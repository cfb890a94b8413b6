"""Every setting of a consumer: its default, its unit and its check, once.

Laws
1. A setting is refused when the consumer is built, or it works. Nothing is only warned about. Some concern one kind of
   consumer only: what bounds fetches and polls of records says nothing to a `RangeConsumer`.
2. Names are Kafka's own in snake case; times are seconds as floats (so without Kafka's ``.ms``).
3. No value is a file name, an environment variable or an import path in disguise: what names a file ends in _file.
4. No secret is in the repr, and no error shows one.
5. A setting of TLS or SASL that would have no effect, or take a protection away unasked, is refused. What files hold is
   checked when they are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Required, TypeAlias, TypedDict, get_args

from instride._core.assignors.assignor import Assignor
from instride._coroutines import is_asynchronous
from instride._setting_parsing import POLL_RECORDS, check_telemetry, parse_bootstrap_servers, reset_duration, shown
from instride._texts import not_sendable
from instride._wire.sasl.oauthbearer import OAuthToken
from instride.errors import ConfigError
from instride.telemetry import TelemetryListener

if TYPE_CHECKING:
    import ssl

__all__ = [
    "ConsumerConfig",
    "ConsumerSettings",
    "RunningSettings",
    "UntypedSettings",
]

AutoOffsetReset: TypeAlias = str | float
RevokeMode = Literal["two-step", "immediate"]
FetchFairness = Literal["greedy", "proportional"]
Prefetch = Literal["bytes", "total", "partition"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
ClientDnsLookup = Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
OAuthTokenFunction = Callable[[], str | OAuthToken]
Deserializer = Callable[..., Any]
Interceptor = Any
"""An `instride.interceptors.ConsumerInterceptor`, which speaks of records: settings stand below them."""

_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "revoke_mode": get_args(RevokeMode),
    "fetch_fairness": get_args(FetchFairness),
    "prefetch": get_args(Prefetch),
    "isolation_level": get_args(IsolationLevel),
    "client_dns_lookup": get_args(ClientDnsLookup),
    "security_protocol": get_args(SecurityProtocol),
}

_SEQUENCES: Final = {
    "assignors": 'names, such as ["cooperative-sticky"]',
    "interceptors": "interceptors, such as [MyInterceptor()]",
}

# What Kafka takes for the name of a topic, it takes for that of an instance.
_INSTANCE_ID: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}", re.ASCII)

# name -> (lowest, highest) value, both allowed. The highest of a time is such that milliseconds are seen to be none.
_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "session_timeout": (0.05, 3_600),
    "heartbeat_interval": (0.01, 1_200),
    "max_poll_interval": (0.1, 86_400),
    "request_timeout": (0.05, 3_600),
    "default_api_timeout": (0.05, 3_600),
    "connection_setup_timeout": (0.05, 3_600),
    "retry_backoff": (0.001, 60),
    "retry_backoff_max": (0.001, 300),
    "reconnect_backoff": (0.001, 60),
    "reconnect_backoff_max": (0.001, 300),
    "metadata_max_age": (0.1, 86_400),
    "fetch_min_bytes": (1, 1 << 30),
    "fetch_max_wait": (0, 3_600),
    "fetch_max_bytes": (1, 1 << 30),
    "max_partition_fetch_bytes": (1, 1 << 30),
    "fetch_buffer_bytes": (1, 1 << 40),
    "max_frame_bytes": (1 << 10, (1 << 31) - 1),
    "max_decompressed_bytes": (1 << 10, (1 << 31) - 1),
    "auto_commit_interval": (0.01, 3_600),
    "commit_budget": (0, 3_600),
    "range_poll_interval": (0.005, 3_600),
    "stalled_after": (0.1, 86_400),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The settings of a consumer. Built by `Consumer(**settings)`; raises `ConfigError` on a wrong value.

    bootstrap_servers: "host:port,host:port" or a sequence of "host:port".
    group_id: the consumer group; None for a consumer that only assigns.
    group_instance_id: static membership (KIP-345): a name that outlives restarts, of one member of the group at a time.
    client_id: how brokers name this client in logs, quotas and metrics.
    client_rack: where this client runs, as the brokers' broker.rack has it: assignors prefer replicas there (KIP-881),
        and a broker may name one to read from (KIP-392).
    assignors: in order of preference: names ("cooperative-sticky", "sticky", "range", "roundrobin"), or your own.
    auto_offset_reset: where a partition with no committed offset starts: "earliest", "latest", or "none", which is an
        error. Or by duration: seconds, or as Kafka writes it, "by_duration:PT1H": what was written since (KIP-1106).
    isolation_level: "read_committed" leaves aborted transactions out.
    max_poll_records: most records that one poll returns; -1 for no bound (KIP-41). None: 500, but no bound for
        `poll_arrow`, since each table has a cost of its own.
    fetch_fairness: "greedy" round-robin, or "proportional": an equal share of each partition (KIP-41).
    prefetch: "bytes": a partition is fetched again when its buffer is below its share of fetch_buffer_bytes. "total":
        also only while fewer than max_poll_records records (None: 500) are buffered in all. "partition": also only
        while fewer than its share of these are buffered of it. Keep "bytes" unless you want KIP-41's heuristics: these
        fetch less ahead. With max_poll_records=-1 there is no difference.
    fetch_buffer_bytes: bound on what is buffered for all partitions together, compressed and decompressed.
    fetch_min_bytes, fetch_max_wait, fetch_max_bytes, max_partition_fetch_bytes: as Kafka's; fetch_buffer_bytes bounds
        the last two as well.
    revoke_mode: "two-step" (KIP-983), or "immediate": as before the KIP.
    commit_budget: seconds kept free before a revocation's deadline so that the last commit arrives; twice the
        coordinator's round trip where that is seen to be more.
    exclude_internal_topics: leave __consumer_offsets and its like out of a subscription by pattern.
    key_deserializer, value_deserializer: called with the bytes of each record that poll returns, and a context if it
        takes one (`instride.deserializers`); None leaves bytes.
    interceptors: `ConsumerInterceptor`s, in the order in which they are called.
    enable_auto_commit: each auto_commit_interval a poll commits what earlier polls returned. A revocation, a second
        assign, unsubscribe and close commit the position: also what the last poll returned, handled or not. So it is
        only for processing that ends before the next call. Use `Consumer.commit` where that matters.
    commit_start_offsets: True: when this member releases a partition of which it has committed nothing, it commits the
        initial position, so that the next owner misses nothing. That is the offset to which the newest reset (latest,
        or by duration) led; after a truncation, the offset at which the member began, or that at which the log was
        truncated if it is lower. If a seek came after that, it commits none. False: it never does. None: it does if it
        commits at all, by a call or by auto-commit.
    session_timeout, heartbeat_interval, max_poll_interval: as Kafka's. While a hand-over is pending, members heartbeat
        more often. max_poll_interval is also the member's rebalance time-out and the longest delay of a revocation.
    request_timeout, default_api_timeout, connection_setup_timeout: bounds of a request, of a blocking call
        without a timeout of its own, and of making a connection.
    retry_backoff(_max), reconnect_backoff(_max): the first and the longest pause before a request is tried again, or a
        connection. It doubles each time, and is up to 20 % shorter or longer at random.
    metadata_max_age: topics and leaders are looked up again after this.
    client_dns_lookup: "use_all_dns_ips" tries every address of a name, those first that have not failed;
        "resolve_canonical_bootstrap_servers_only" goes by the canonical names of a bootstrap server's addresses.
    max_frame_bytes: a longer response of a broker is refused before anything is allocated.
    max_decompressed_bytes: a record batch that decompresses to more, its index included, is refused. If its compressed
        size is over a quarter of this, the excess counts too, since both forms are in memory at once.
    range_poll_interval: how often a RangeConsumer asks for the ends of its partitions.
    telemetry: hears of rebalances, hand-overs and stalls, on the application's thread (`instride.telemetry`).
    stalled_after: an owned partition that is behind, or of which no fetch succeeds, is warned of after so long.
    security_protocol: Kafka's names; "SSL" is TLS. docs/security.md tells of all that follow.
    ssl_context: one of your own; it must verify certificates, names too, and take TLS 1.2 or later only.
    ssl_ca_file: PEM; whom to trust, instead of the system's certificate authorities. ssl_cert_file, ssl_key_file,
        ssl_key_password: PEM; our certificate and key, where the broker wants one.
    ssl_check_hostname: False takes a certificate of any name (of a trusted authority still).
    sasl_mechanism: with sasl_username and sasl_password, or for "OAUTHBEARER" with sasl_oauth_token: a function that
        returns a token or `OAuthToken`. The consumer calls it on a separate thread, and waits for it for at most four
        fifths of connection_setup_timeout.
    sasl_kerberos_service_name: for "GSSAPI", the brokers' (None: "kafka"). sasl_kerberos_principal and
        sasl_kerberos_keytab_file: who we are, and our key; None: whoever the user's own ticket cache is of (kinit).
    sasl_plain_without_tls: allows PLAIN and OAUTHBEARER where everybody on the way can read the secret.
    """

    bootstrap_servers: str | Sequence[str]
    group_id: str | None = None
    group_instance_id: str | None = None
    client_id: str = "instride"
    client_rack: str | None = None
    assignors: Sequence[str | Assignor] = ("cooperative-sticky",)
    auto_offset_reset: AutoOffsetReset = "latest"
    isolation_level: IsolationLevel = "read_uncommitted"
    max_poll_records: int | None = None
    fetch_fairness: FetchFairness = "greedy"
    prefetch: Prefetch = "bytes"
    fetch_buffer_bytes: int = 64 << 20
    fetch_min_bytes: int = 1
    fetch_max_wait: float = 0.5
    fetch_max_bytes: int = 50 << 20
    max_partition_fetch_bytes: int = 1 << 20
    revoke_mode: RevokeMode = "two-step"
    commit_budget: float = 1.0
    exclude_internal_topics: bool = True
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    interceptors: Sequence[Interceptor] = ()
    enable_auto_commit: bool = False
    commit_start_offsets: bool | None = None
    auto_commit_interval: float = 5.0
    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0
    max_poll_interval: float = 300.0
    request_timeout: float = 30.0
    default_api_timeout: float = 60.0
    connection_setup_timeout: float = 10.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0
    reconnect_backoff: float = 0.05
    reconnect_backoff_max: float = 1.0
    metadata_max_age: float = 300.0
    client_dns_lookup: ClientDnsLookup = "use_all_dns_ips"
    max_frame_bytes: int = 128 << 20
    max_decompressed_bytes: int = 64 << 20
    range_poll_interval: float = 0.1
    telemetry: TelemetryListener | None = field(default=None, repr=False)
    stalled_after: float = 60.0
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None
    ssl_ca_file: str | None = None
    ssl_cert_file: str | None = None
    ssl_key_file: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_oauth_token: OAuthTokenFunction | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_principal: str | None = None
    sasl_kerberos_keytab_file: str | None = None
    sasl_plain_without_tls: bool = False

    @property
    def poll_records(self) -> int:
        """Most records of a poll that is told no other number; -1: no bound."""
        return POLL_RECORDS if self.max_poll_records is None else self.max_poll_records

    def __post_init__(self) -> None:
        parse_bootstrap_servers(self.bootstrap_servers)
        _check_sequences(self)
        _check_types(self)
        _check_choices(self)
        _check_bounds(self)
        _check_together(self)
        _check_security(self)


class UntypedSettings(TypedDict, total=False):
    """Those that say nothing of the types of keys and values."""

    bootstrap_servers: Required[str | Sequence[str]]
    group_id: str | None
    group_instance_id: str | None
    client_id: str
    client_rack: str | None
    assignors: Sequence[str | Assignor]
    auto_offset_reset: AutoOffsetReset
    isolation_level: IsolationLevel
    max_poll_records: int | None
    fetch_fairness: FetchFairness
    prefetch: Prefetch
    fetch_buffer_bytes: int
    fetch_min_bytes: int
    fetch_max_wait: float
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    revoke_mode: RevokeMode
    commit_budget: float
    exclude_internal_topics: bool
    interceptors: Sequence[Interceptor]
    enable_auto_commit: bool
    commit_start_offsets: bool | None
    auto_commit_interval: float
    session_timeout: float
    heartbeat_interval: float
    max_poll_interval: float
    request_timeout: float
    default_api_timeout: float
    connection_setup_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    metadata_max_age: float
    client_dns_lookup: ClientDnsLookup
    max_frame_bytes: int
    max_decompressed_bytes: int
    range_poll_interval: float
    telemetry: TelemetryListener | None
    stalled_after: float
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_ca_file: str | None
    ssl_cert_file: str | None
    ssl_key_file: str | None
    ssl_key_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_oauth_token: OAuthTokenFunction | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab_file: str | None
    sasl_plain_without_tls: bool


class ConsumerSettings(UntypedSettings, total=False):
    """All settings of `ConsumerConfig` as keyword arguments: for a dict of one's own, or ``Unpack`` in a signature."""

    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None


class RunningSettings(TypedDict, total=False):
    """The settings that may be changed while a consumer runs: `Consumer.change_settings`."""

    max_poll_records: int | None
    fetch_fairness: FetchFairness
    prefetch: Prefetch
    fetch_buffer_bytes: int
    fetch_min_bytes: int
    fetch_max_wait: float
    fetch_max_bytes: int
    max_partition_fetch_bytes: int


def _check_sequences(config: ConsumerConfig) -> None:
    for name, example in _SEQUENCES.items():
        given = getattr(config, name)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"{name} must be a sequence of {example}; it is of type {type(given).__name__}")
        for each in given if isinstance(given, Collection) else ():
            if isinstance(each, type):
                raise ConfigError(f"{name}: {each.__name__} is a class; write {each.__name__}()")
    if not config.assignors:
        raise ConfigError(f"assignors must be a sequence of {_SEQUENCES['assignors']}; it is empty")


def _check_types(config: ConsumerConfig) -> None:
    if config.group_id is not None and not (isinstance(config.group_id, str) and config.group_id):
        raise ConfigError("group_id must be a text that is not empty, or None for a consumer without a group")
    instance = config.group_instance_id
    if instance is not None and not (isinstance(instance, str) and _INSTANCE_ID.fullmatch(instance)):
        raise ConfigError(
            "group_instance_id must be 1 to 249 ASCII letters, digits, dots, '_' and '-', and not '.' or '..'; "
            f"it is {shown(instance)}"
        )
    if config.client_rack is not None and not (isinstance(config.client_rack, str) and config.client_rack):
        raise ConfigError("client_rack must be a text that is not empty, or None")
    if not isinstance(config.client_id, str):
        raise ConfigError("client_id must be a text")
    for name in ("group_id", "client_rack", "client_id"):
        if why := not_sendable(getattr(config, name) or ""):
            raise ConfigError(f"{name} {why}")
    for name in ("exclude_internal_topics", "enable_auto_commit"):
        if not isinstance(getattr(config, name), bool):
            raise ConfigError(f"{name} must be True or False")
    if config.commit_start_offsets is not None and not isinstance(config.commit_start_offsets, bool):
        raise ConfigError("commit_start_offsets must be True, False or None")
    check_telemetry(config.telemetry)
    reset_duration(config.auto_offset_reset)
    records = config.poll_records
    if not isinstance(records, int) or isinstance(records, bool) or (records < 1 and records != -1):
        raise ConfigError(f"max_poll_records must be 1 or more, -1 for no bound, or None; it is {shown(records)}")


def _check_choices(config: ConsumerConfig) -> None:
    for name, choices in _CHOICES.items():
        value = getattr(config, name)
        if value not in choices:
            known = ", ".join(repr(choice) for choice in choices)
            raise ConfigError(f"{name} must be one of {known}; it is {shown(value)}")


def _check_bounds(config: ConsumerConfig) -> None:
    for name, (low, high) in _BOUNDS.items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            hint = "" if name.endswith("bytes") else _seconds_hint(value, high)
            raise ConfigError(f"{name} must be a number from {low} to {high}; it is {shown(value)}{hint}")
        if isinstance(low, int) and name.endswith("bytes") and not isinstance(value, int):
            raise ConfigError(f"{name} must be a whole number of bytes; it is {value!r}")


def _seconds_hint(value: object, high: float) -> str:
    if isinstance(value, int | float) and high < value <= 1000 * high:  # before it is divided: no float is as large
        return f". Times are seconds: {value / 1000:g}?"
    return f"; write {value.total_seconds():g}" if isinstance(value, timedelta) else ""


def _check_together(config: ConsumerConfig) -> None:
    if config.heartbeat_interval >= config.session_timeout:
        raise ConfigError(
            f"heartbeat_interval ({config.heartbeat_interval} s) must be below session_timeout "
            f"({config.session_timeout} s); a third of it is usual"
        )
    if config.commit_budget >= config.max_poll_interval:
        raise ConfigError(
            f"commit_budget ({config.commit_budget} s) must be below max_poll_interval "
            f"({config.max_poll_interval} s), or no revocation could ever be delayed"
        )
    if config.fetch_max_wait > config.request_timeout:
        raise ConfigError(
            f"fetch_max_wait ({config.fetch_max_wait:g} s) must not be above request_timeout "
            f"({config.request_timeout:g} s), or fetches would be abandoned before the broker responds"
        )
    if config.group_instance_id is not None and config.group_id is None:
        raise ConfigError("group_instance_id needs a group_id: it names a member of a group")
    if config.enable_auto_commit and config.group_id is None:
        raise ConfigError("enable_auto_commit needs a group_id to commit to")
    for low, high in (("retry_backoff", "retry_backoff_max"), ("reconnect_backoff", "reconnect_backoff_max")):
        if getattr(config, low) > getattr(config, high):
            raise ConfigError(
                f"{low} ({getattr(config, low):g} s) must not be above {high} ({getattr(config, high):g} s)"
            )


# -- TLS and SASL: which settings fit together

_USES_TLS: Final = ("SSL", "SASL_SSL")
_USES_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_SHOWS_THE_SECRET: Final = ("PLAIN", "OAUTHBEARER")
_FILES: Final = ("ssl_ca_file", "ssl_cert_file", "ssl_key_file", "ssl_key_password")
_PASSWORD: Final = ("sasl_username", "sasl_password")
_KERBEROS: Final = ("sasl_kerberos_service_name", "sasl_kerberos_principal", "sasl_kerberos_keytab_file")
_TEXTS: Final = (*_FILES, *_PASSWORD, *_KERBEROS)
# Which settings belong to a mechanism; the names of all others are refused beside it.
_OWN: Final[dict[str, tuple[str, ...]]] = {"OAUTHBEARER": ("sasl_oauth_token",), "GSSAPI": _KERBEROS}


def _check_security(config: ConsumerConfig) -> None:
    """Raises ConfigError."""
    for name in _TEXTS:
        value = getattr(config, name)
        if value is not None and not (isinstance(value, str) and value):
            raise ConfigError(f"{name} must be a text that is not empty, or None")
        # Before anything quotes it: it may be the private key, which other clients take as a text.
        if value is not None and name.startswith("ssl_") and name.endswith("_file") and "-----BEGIN" in value:
            raise ConfigError(
                f"{name} names a PEM file, and was given PEM text: write that to a file which only you may read"
            )
    for name in ("ssl_check_hostname", "sasl_plain_without_tls"):
        if not isinstance(getattr(config, name), bool):
            raise ConfigError(f"{name} must be True or False")
    _check_tls(config)
    _check_sasl(config)


def _check_tls(config: ConsumerConfig) -> None:
    given = [name for name in (*_FILES, "ssl_context") if getattr(config, name) is not None]
    if not config.ssl_check_hostname:
        given.append("ssl_check_hostname=False")
    if config.security_protocol not in _USES_TLS:
        _refuse(given, f"needs security_protocol SSL or SASL_SSL; it is {config.security_protocol}")
        return
    if config.ssl_context is not None:
        _refuse([name for name in given if name in _FILES], "cannot be given together with ssl_context: load it there")
    if config.ssl_key_file is not None and config.ssl_cert_file is None:
        raise ConfigError("ssl_key_file needs ssl_cert_file, the certificate that the key belongs to")
    if config.ssl_key_password is not None and config.ssl_cert_file is None:
        raise ConfigError("ssl_key_password needs ssl_cert_file (and ssl_key_file, where the key is not in it)")


def _check_sasl(config: ConsumerConfig) -> None:
    protocol, mechanism = config.security_protocol, config.sasl_mechanism
    names = ("sasl_mechanism", *_PASSWORD, "sasl_oauth_token", *_KERBEROS)
    if protocol not in _USES_SASL:
        given = [name for name in names if getattr(config, name) is not None]
        given += ["sasl_plain_without_tls"] if config.sasl_plain_without_tls else []
        _refuse(given, f"needs security_protocol SASL_SSL or SASL_PLAINTEXT; it is {protocol}")
        return
    if mechanism not in _MECHANISMS:
        known = ", ".join(map(repr, _MECHANISMS))
        raise ConfigError(
            f"security_protocol {protocol} needs a sasl_mechanism: one of {known}; it is {shown(mechanism)}"
        )
    own = _OWN.get(mechanism, _PASSWORD)
    given = [name for name in names[1:] if name not in own and getattr(config, name) is not None]
    _refuse(given, f"does not belong to sasl_mechanism {mechanism}")
    if mechanism == "OAUTHBEARER":
        _check_oauth(config)
    elif mechanism != "GSSAPI":
        _check_password(config)
    _check_without_tls(config)


def _check_oauth(config: ConsumerConfig) -> None:
    if not callable(config.sasl_oauth_token):
        raise ConfigError("sasl_mechanism OAUTHBEARER needs sasl_oauth_token, a function that returns a token")
    if is_asynchronous(config.sasl_oauth_token):
        raise ConfigError("sasl_oauth_token is asynchronous; a plain function is called, in a thread of its own")


def _check_password(config: ConsumerConfig) -> None:
    for name in _PASSWORD:
        value: Any = getattr(config, name)
        if value is None:
            raise ConfigError(f"sasl_mechanism {config.sasl_mechanism} needs {name}")
        try:
            bad = "\0" in value or not value.encode()
        except UnicodeEncodeError:
            bad = True
        if bad:
            raise ConfigError(f"{name} has a character that cannot be sent")


def _check_without_tls(config: ConsumerConfig) -> None:
    """A listener without TLS would let everybody on the way read the password or token."""
    exposed = config.security_protocol == "SASL_PLAINTEXT" and config.sasl_mechanism in _SHOWS_THE_SECRET
    if exposed and not config.sasl_plain_without_tls:
        raise ConfigError(
            f"sasl_mechanism {config.sasl_mechanism} over security_protocol SASL_PLAINTEXT sends the secret readable "
            "for everybody on the way; use SASL_SSL or SCRAM, or say sasl_plain_without_tls=True if that is meant"
        )
    if config.sasl_plain_without_tls and not exposed:
        raise ConfigError(
            "sasl_plain_without_tls=True is only for PLAIN and OAUTHBEARER over SASL_PLAINTEXT; leave it out here"
        )


def _refuse(given: list[str], why: str) -> None:
    if given:
        raise ConfigError(f"{given[0]} {why}")


def changed_while_running(config: ConsumerConfig, settings: Mapping[str, Any]) -> ConsumerConfig:
    """The config with these settings instead. ConfigError for one that cannot be changed, or a wrong value."""
    for name in settings:
        if name not in RunningSettings.__annotations__:
            known = ", ".join(sorted(RunningSettings.__annotations__))
            raise ConfigError(f"{name!r} cannot be changed while the consumer runs; what can: {known}")
    return replace(config, **settings)
