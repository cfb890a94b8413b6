"""Every decoder of bytes that others send, under mutated bytes: `targets` is the list, `python -m fuzz` runs it."""
