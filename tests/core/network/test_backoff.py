"""The pause before another try (KIP-580): doubled, bounded, up to a fifth shorter or longer by chance."""

from __future__ import annotations

import pytest

from instride.core.network.backoff import Backoff


def pauses(chance: float, count: int, *, at_least: float = 0.0) -> list[float]:
    backoff = Backoff(0.1, 1.0, lambda: chance)
    found = []
    for _ in range(count):
        backoff.failed(50.0, at_least=at_least)
        assert not backoff.ready(backoff.ready_at - 0.001)
        assert backoff.ready(backoff.ready_at)
        found.append(backoff.ready_at - 50.0)
    return found


@pytest.mark.requirement("surface/back-off")
@pytest.mark.requirement("threading/13")
def test_it_doubles_up_to_its_bound() -> None:
    assert pauses(0.5, 6) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert pauses(0.5, 5000)[-1] == pytest.approx(1.0), "however often it failed"


@pytest.mark.requirement("surface/back-off")
@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.8), (0.5, 1.0), (0.75, 1.1), (1.0, 1.2)])
def test_chance_makes_it_up_to_a_fifth_shorter_or_longer(chance: float, factor: float) -> None:
    """Members that failed together do not try again together."""
    assert pauses(chance, 5) == pytest.approx([each * factor for each in (0.1, 0.2, 0.4, 0.8, 1.0)])


def test_what_must_not_be_tried_often_never_is() -> None:
    assert min(pauses(0.0, 4, at_least=1.0)) == 1.0


def test_a_success_begins_anew() -> None:
    backoff = Backoff(0.1, 1.0, lambda: 0.5)
    for _ in range(3):
        backoff.failed(0.0)
    backoff.succeeded()
    assert backoff.ready(0.0)
    backoff.failed(10.0)
    assert backoff.ready_at == pytest.approx(10.1)
