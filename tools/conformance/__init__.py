"""Which test proves which requirement: read from the tests' own markers, written as docs/conformance.md."""
