"""The demo of the README: two applications share a topic, and nobody stops (docs/demo.md). Not in the wheel."""
