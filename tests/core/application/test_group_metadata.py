"""`group_metadata` and `enforce_rebalance`: what a transactional producer is told, and what the network side is."""

from __future__ import annotations

import pytest
from application_script import Script, epochs

from instride import GroupMetadata
from instride._core.events import Assigned, EnforceRebalance, Lost
from instride.errors import IllegalStateError


@pytest.mark.requirement("surface/group-metadata")
def test_it_is_of_the_newest_assignment_that_a_poll_has_taken() -> None:
    script = Script(group_instance_id="one")
    script.subscribe()
    assert script.machine.group_metadata() == GroupMetadata("g", -1, "", "one")
    script.up(Assigned(generation=4, partitions=epochs(0), member_id="me"))
    assert script.machine.group_metadata().generation_id == -1, "no poll has taken it"
    script.poll()
    assert script.machine.group_metadata() == GroupMetadata("g", 4, "me", "one")


@pytest.mark.requirement("surface/group-metadata")
def test_who_has_not_polled_since_a_loss_is_fenced_by_its_old_generation() -> None:
    script = Script()
    script.subscribe()
    script.up(Assigned(generation=4, partitions=epochs(0), member_id="me"))
    script.poll()
    script.up(Lost(partitions=epochs(0)), Assigned(generation=6, partitions=epochs(0, epoch=2), member_id="me"))
    assert script.machine.group_metadata().generation_id == 4
    script.poll()
    script.poll()
    assert script.machine.group_metadata().generation_id == 6


@pytest.mark.requirement("surface/group-metadata")
@pytest.mark.parametrize("also", [(), (1,)])
def test_an_assignment_that_is_taken_late_leads_back_to_no_older_generation(also: tuple[int, ...]) -> None:
    """The poll that takes the loss takes later events of other partitions only. Transactions with the older generation
    would be refused until the next rebalance. also: what is assigned together with it."""
    script = Script()
    script.subscribe()
    script.up(Assigned(generation=4, partitions=epochs(0), member_id="old"))
    script.poll()
    script.up(
        Lost(partitions=epochs(0)),
        Assigned(generation=5, partitions=epochs(0, *also, epoch=2), member_id="me"),
        Assigned(generation=6, partitions={}, member_id="me"),
    )
    for owned in (set(also), {0, *also}):
        script.poll()
        assert script.assignment() == owned
        assert script.machine.group_metadata() == GroupMetadata("g", 6, "me")


@pytest.mark.requirement("surface/group-metadata")
def test_a_group_that_was_lost_and_made_anew_begins_at_a_lower_generation() -> None:
    script = Script()
    script.subscribe()
    script.up(Assigned(generation=40, partitions=epochs(0), member_id="me"))
    script.poll()
    script.up(Lost(partitions=epochs(0)), Assigned(generation=2, partitions=epochs(0, epoch=2), member_id="me"))
    script.poll()
    script.poll()
    assert script.machine.group_metadata().generation_id == 2


def test_it_is_gone_with_the_subscription() -> None:
    script = Script()
    script.subscribe()
    script.up(Assigned(generation=4, partitions={}, member_id="me"))
    script.poll()
    script.run(script.machine.unsubscribe(script.now, 0.0))
    assert script.machine.group_metadata() == GroupMetadata("g")


def test_a_rebalance_needs_a_subscription() -> None:
    script = Script()
    with pytest.raises(IllegalStateError, match="subscribe first"):
        script.machine.enforce_rebalance("why not")
    script.subscribe()
    script.machine.enforce_rebalance("why not")
    assert script.take_posted(EnforceRebalance) == [EnforceRebalance(reason="why not")]


def test_a_rebalance_may_be_wanted_while_nothing_matches_the_pattern() -> None:
    script = Script()
    script.machine.subscribe(None, None, "nothing-.*")
    assert script.machine.subscription() == frozenset()
    script.machine.enforce_rebalance("is there nothing yet")
    assert script.take_posted(EnforceRebalance) == [EnforceRebalance(reason="is there nothing yet")]


def test_without_a_group_there_is_none() -> None:
    with pytest.raises(IllegalStateError, match="group_id"):
        Script(group_id=None).machine.group_metadata()


@pytest.mark.parametrize("instance", [None, "one"])
def test_confluent_kafka_takes_what_it_would_have_made_itself(instance: str | None) -> None:
    """Before a group has been joined: no broker is asked."""
    from confluent_kafka import Consumer

    static = {} if instance is None else {"group.instance.id": instance}
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, **static})
    assert GroupMetadata("g", group_instance_id=instance).for_confluent_kafka() == consumer.consumer_group_metadata()
    consumer.close()
