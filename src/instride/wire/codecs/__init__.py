"""From requests and answers to bytes and back: one file for each API, found through `registry`."""

from instride.wire.codecs.registry import choose_version, codec_of

__all__ = ["choose_version", "codec_of"]
