"""The tree of errors: one class for each of a broker's codes, drawn as it is, with what it says of trying again."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from instride import errors
from instride.errors import (
    BROKER_ERRORS,
    BrokerResponseError,
    CommitFailedError,
    ConsumerClosedError,
    ErrorCode,
    ForkedConsumerError,
    KafkaError,
    error_for_code,
)
from instride.records import ConsumerRecord

ROOT = Path(__file__).resolve().parent.parent


def subclasses(kind: type[KafkaError]) -> set[type[KafkaError]]:
    found = set(kind.__subclasses__())
    return found.union(*(subclasses(each) for each in found))


OWN = {kind for kind in subclasses(KafkaError) if kind.__module__.startswith(errors.__name__)}


def test_every_code_has_one_class() -> None:
    # What only refines an error of a code has that code as well.
    codes = [kind.code for kind in BrokerResponseError.__subclasses__() if kind is not CommitFailedError]
    with_code = [code for code in codes if code != ErrorCode.UNKNOWN_SERVER_ERROR]
    assert len(with_code) == len(set(with_code))
    assert set(with_code) == {code for code in BROKER_ERRORS if code != ErrorCode.UNKNOWN_SERVER_ERROR}
    for code, kind in BROKER_ERRORS.items():
        assert kind.code == code


def test_every_row_of_the_table_of_codes_has_a_class_that_says_the_same() -> None:
    """UNKNOWN_SERVER_ERROR's is the base class, and NONE is no error."""
    assert set(BROKER_ERRORS) == set(ErrorCode) - {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
    for code, kind in BROKER_ERRORS.items():
        assert kind.code is ErrorCode(code)
        assert (kind.retriable, kind.fatal) == (ErrorCode(code).retriable, ErrorCode(code).fatal)


def test_the_core_and_the_models_name_error_codes() -> None:
    """No bare number: neither compared, nor collected, nor given a name elsewhere."""
    bare = re.compile(r"\b(code|error)s?\b (==|!=|in|not in) [({]?-?[1-9]|frozenset\(\{-?\d|error=-?[1-9]")
    package = Path(errors.__file__).parent.parent
    for folder in ("_core", "_wire", "_net", "testing"):
        for path in sorted((package / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                assert not bare.search(line), f"{path}:{number}: {line.strip()}"


@pytest.mark.parametrize("code", sorted(BROKER_ERRORS))
def test_a_code_becomes_its_class_with_the_message(code: int) -> None:
    error = error_for_code(code, "what went wrong")
    assert type(error) is BROKER_ERRORS[code]
    assert error.code == code
    assert str(error) == "what went wrong" + (f". {error.advice}" if error.advice else "")
    assert str(code) in str(error_for_code(code))


@pytest.mark.requirement("surface/advice")
@pytest.mark.parametrize(
    ("code", "says"),
    [
        (12, "offset.metadata.max.bytes"),
        (17, "letters"),
        (24, "group_id"),
        (25, "joins again"),
        (26, "session_timeout must lie between"),
        (30, "needs Read for the group"),
        (81, "group.max.size"),
        (82, "group_instance_id"),
    ],
)
def test_what_the_user_can_mend_is_told(code: int, says: str) -> None:
    assert says in str(error_for_code(code, "JoinGroup of group 'g'"))


def test_an_unknown_code_is_of_the_base_class_and_keeps_its_code() -> None:
    error = error_for_code(31_000)
    assert type(error) is BrokerResponseError
    assert error.code == 31_000
    assert "31000" in str(error)
    assert not error.retriable
    assert not error.fatal
    assert error_for_code(31_000, "while testing").code == 31_000


def test_nothing_is_both_retriable_and_fatal() -> None:
    for kind in OWN:
        assert not (kind.retriable and kind.fatal), kind.__name__


@pytest.mark.parametrize("kind", [ConsumerClosedError, ForkedConsumerError])
def test_what_a_consumer_cannot_come_back_from_is_fatal(kind: type[KafkaError]) -> None:
    """So a loop that ends by what is fatal needs no list of its own."""
    assert kind.fatal


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_passing_troubles_are_retriable(code: int) -> None:
    assert error_for_code(code).retriable


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_a_group_that_cannot_be_joined_is_fatal(code: int) -> None:
    assert error_for_code(code).fatal


def test_every_class_has_a_docstring_or_a_code() -> None:
    for kind in OWN:
        assert kind.__doc__ or issubclass(kind, BrokerResponseError), kind.__name__


def test_the_drawn_tree_names_every_class_that_is_none_of_a_code() -> None:
    drawn = errors.__doc__ or ""
    for kind in OWN:
        if not issubclass(kind, BrokerResponseError) or kind is CommitFailedError:
            assert kind.__name__ in drawn, kind.__name__


def test_what_is_public_exists_and_is_named_once() -> None:
    assert len(errors.__all__) == len(set(errors.__all__))
    for name in errors.__all__:
        assert hasattr(errors, name), name


def test_errors_are_what_python_programs_expect() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.KafkaTimeoutError, TimeoutError)
    assert issubclass(errors.IllegalStateError, RuntimeError)


BARE = re.compile(r"""\b(?:error|error_code)["']?(?:=|: | == | != )(-?\d+)\b(?![.:])|\bcode == (-?\d+)\b""")


def test_a_code_of_the_table_has_its_name_wherever_it_is_used() -> None:
    files = [
        file for folder in ("src", "tests", "tools", "benchmarks", "demo") for file in (ROOT / folder).rglob("*.py")
    ]
    bare = [
        f"{file.relative_to(ROOT)}: {found.group()}"
        for file in files
        for found in BARE.finditer(file.read_text(encoding="utf-8"))
        if (int(found.group(1) or found.group(2)) or None) in set(ErrorCode)
        if file.name != "test_lying_responses.py"  # there the number is a width in bytes
    ]
    assert len(files) > 500
    assert not bare, "\n".join(bare)


# What each argument of an error's constructor may be, by its name.
EXAMPLES = {
    "message": "what went wrong",
    "code": 31_000,
    "topic": "t",
    "partition": 3,
    "offset": 10,
    "committed": 12,
    "divergent_offset": None,
    "start": 4,
    "end": 7,
    "length": 9,
    "part": "key",
    "record": ConsumerRecord("t", 3, 10, value=b"v"),
    "old_topic_id": UUID(int=1),
    "topic_id": UUID(int=2),
    "port_taken": True,
}


def example(kind: type[KafkaError]) -> KafkaError:
    """With an argument for each parameter that the class adds."""
    made = [each for each in kind.__mro__ if "__init__" in vars(each) and issubclass(each, KafkaError)]
    if not made:
        return kind("what went wrong")
    names = list(inspect.signature(made[0].__init__).parameters)[1:]
    given = {name: EXAMPLES[name] for name in names}
    message = [given.pop("message")] if "message" in given else []
    error = kind(*message, **given)
    assert given.items() <= {name: getattr(error, name) for name in given}.items(), "each is an attribute"
    return error


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("kind", [KafkaError, *sorted(OWN, key=lambda kind: kind.__name__)])
def test_an_error_outlives_a_copy_and_a_way_between_processes(
    kind: type[KafkaError], way: Callable[[KafkaError], KafkaError]
) -> None:
    error = example(kind)
    error.add_note("while testing")
    again = way(error)
    assert again is not error
    assert type(again) is kind
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    assert (again.retriable, again.fatal) == (error.retriable, error.fatal)
