"""A look-up of topics by name."""

from __future__ import annotations

from application_script import Script

from instride._core.events import FetchMetadata


def test_a_look_up_of_no_topics_ends_without_the_network(script: Script) -> None:
    """None are all topics, and an empty list is no topic."""
    script.posted.clear()
    assert script.run(script.machine.topics(script.now, (), 10.0, internal=True)) == {}
    assert script.take_posted(FetchMetadata) == []
