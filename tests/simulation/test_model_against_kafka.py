"""The simulation's models are right: each script is played at them and at Apache Kafka, and both say the same."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_places import PARTITIONS, KafkaPlace, ModelPlace
from raw_plays import DELAYED, DELAYING, INITIAL_DELAY, LATE, NAMES, KafkaPlays, play_at_the_model, play_in_time, script
from raw_random import random_script
from raw_script import play

from instride.testing import LocalKafka

SEEDS = range(int(os.environ.get("INSTRIDE_RANDOM_SCRIPTS", "24")))
PATIENCE = (0.3, 1.0, 3.0)
KEPT_WAITING = """\
A join
A join
A sync A=0
B join
B join ...
wait 1
B joined
"""


@pytest.mark.parametrize("name", NAMES)
def test_the_model_responds_as_the_script_says(name: str) -> None:
    assert play_at_the_model(name) == script(name)


@pytest.fixture(scope="module")
def plays(kafka: LocalKafka) -> Iterator[KafkaPlays]:
    plays = KafkaPlays(kafka, [name for name in NAMES if name not in DELAYED])
    yield plays
    plays.close()


@pytest.fixture(scope="module")
def delayed_plays() -> Iterator[KafkaPlays]:
    with LocalKafka(properties=DELAYING) as kafka:
        plays = KafkaPlays(kafka, DELAYED)
        yield plays
        plays.close()


@pytest.mark.drawn(20)
@pytest.mark.vector(40)
@pytest.mark.kafka
@pytest.mark.parametrize("name", NAMES)
def test_kafka_responds_as_the_script_says(name: str, request: pytest.FixtureRequest) -> None:
    plays: KafkaPlays = request.getfixturevalue("delayed_plays" if name in DELAYED else "plays")
    assert plays.result(name) == script(name)


@pytest.mark.slow
@pytest.mark.kafka
def test_kafka_responds_to_random_scripts_as_the_model_does(kafka: LocalKafka) -> None:
    """Who has no response soon waits, so a busy broker is given more time before it is said to differ."""
    topics = {seed: f"random-{seed}-{uuid.uuid4().hex[:8]}" for seed in SEEDS}
    kafka.create_topics(dict.fromkeys(topics.values(), PARTITIONS))

    def differs(seed: int) -> str:
        expected, told = random_script(seed), ""
        for soon in PATIENCE:
            place = KafkaPlace(kafka.bootstrap_servers, topics[seed], f"group-{uuid.uuid4().hex}", soon=soon)
            try:
                told = play(expected, place)
            finally:
                place.close()
            if told == expected:
                return ""
        return f"seed {seed}, Kafka:\n{told}\nthe model:\n{expected}"

    with ThreadPoolExecutor(len(SEEDS)) as pool:
        assert [each for each in pool.map(differs, SEEDS) if each] == []


def test_random_scripts_are_worth_their_name() -> None:
    """All states and most errors are met; each often."""
    lines = [line for seed in range(24) for line in random_script(seed).splitlines()]
    told = Counter(line.partition("-> ")[2].split(",")[0].partition(" of ")[0] for line in lines)
    errors = ("NONE", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "MEMBER_ID_REQUIRED")
    assert min(told[each] for each in (*errors, "waits", "generation 2")) >= 20, told
    assert told["assigned 1"] >= 5, told


def test_every_step_says_the_response() -> None:
    """A script whose outcomes were never written down would compare nothing."""
    silent = ("wait", "produce", "retain", "delete", "create")
    for name in NAMES:
        steps = [line for line in script(name).splitlines() if line and not line.startswith("#")]
        told = [line for line in steps if "->" in line]
        untold = [line for line in steps if "->" not in line and line.split()[0] not in silent]
        assert len(told) >= 4, name
        assert all(line.endswith("...") or line.split()[1] in ("is", "forgets", "reconnects") for line in untold), name


def test_a_play_depends_on_nothing_that_stands_behind_an_arrow() -> None:
    bare = "".join(line.partition("->")[0].rstrip() + "\n" for line in script("join-two").splitlines())
    assert play(bare, ModelPlace()) == script("join-two")


def test_another_response_is_another_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a coordinator that takes commits of any generation."""
    from instride.testing._simulation.coordinator_model import GroupModel

    monkeypatch.setattr(GroupModel, "_commit_error", lambda self, request: 0)
    assert play_at_the_model("commit-states") != script("commit-states")
    assert play_at_the_model("join-two") == script("join-two")


def test_a_response_that_does_not_come_is_told_with_its_step() -> None:
    with pytest.raises(AssertionError, match=r"at 'B joined': no JoinGroupResponse within 25 s"):
        play(KEPT_WAITING, ModelPlace())


@pytest.mark.parametrize("name", NAMES)
def test_a_script_says_the_same_when_a_line_is_late(name: str) -> None:
    """So a play that differs and was in time shows another broker, not a busy machine."""
    lines = script(name).splitlines()
    for number in range(1, len(lines)):
        late = "\n".join((*lines[:number], f"wait {2 * LATE}", *lines[number:]))
        delay = INITIAL_DELAY if name in DELAYED else 0.0
        told = play(late, ModelPlace(initial_delay=delay)).splitlines()
        assert told[:number] + told[number + 1 :] == lines


class LatePlace(ModelPlace):
    """A busy machine: the first wait takes so many seconds more."""

    def __init__(self, late: float) -> None:
        super().__init__()
        self._late = late

    def wait(self, seconds: float) -> None:
        super().wait(seconds + self._late)
        self._late = 0.0


@pytest.mark.parametrize("late", [3.0, 60.0])
def test_a_play_that_differs_since_it_was_late_is_played_again(late: float) -> None:
    places = iter([LatePlace(late), LatePlace(late), LatePlace(0.0)])
    assert play(script("expiry-session"), LatePlace(late)) != script("expiry-session")
    assert play_in_time("expiry-session", lambda: next(places)) == script("expiry-session")
    assert list(places) == []


def test_a_play_that_differs_in_time_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from instride.testing._simulation.coordinator_model import GroupModel

    expected = script("commit-states")
    monkeypatch.setattr("raw_plays.play_at_the_model", lambda name, times: times.extend([0.0] * 99))
    monkeypatch.setattr(GroupModel, "_commit_error", lambda self, request: 0)
    places = iter([ModelPlace()])
    assert play_in_time("commit-states", lambda: next(places)) != expected


def test_a_play_that_is_late_each_time_is_told_in_the_end() -> None:
    places = iter([LatePlace(60.0), LatePlace(60.0)])
    assert play_in_time("expiry-session", lambda: next(places), tries=2) != script("expiry-session")
