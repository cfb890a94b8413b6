"""From requests and responses to bytes and back: `messages` has every API, `codec` what each codec is made of."""

from instride._wire.codecs.messages import choose_version, codec_of

__all__ = ["choose_version", "codec_of"]
