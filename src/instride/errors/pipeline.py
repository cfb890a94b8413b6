"""What stops the pipeline, and what its sinks cannot do."""

from __future__ import annotations

from instride.errors.base import KafkaError

__all__ = [
    "CorruptManifestError",
    "MissingDataError",
    "NotASinkError",
    "OffsetsGoneError",
    "PipelineError",
    "RangeFailedError",
    "SinkError",
    "SinkUnavailableError",
    "SinkWriteError",
    "WrongTopicError",
]


class SinkError(KafkaError):
    """The pipeline's output could not be written, committed or read. What was committed before stays."""


class NotASinkError(SinkError):
    """The folder is not a sink: it holds something else, or was written by a newer version. Or it can be none: its
    object store lacks what a sink needs.
    """

    fatal = True


class WrongTopicError(SinkError):
    """The sink holds a topic of the same name with another id: the topic was deleted and recreated."""

    fatal = True


class CorruptManifestError(SinkError):
    """A manifest cannot be read, or its chain has a gap. Nothing is written until that is repaired."""

    fatal = True


class MissingDataError(SinkError):
    """A data file that a task reported, or that a manifest lists, is not where this process looks for it."""


class SinkUnavailableError(SinkError):
    """The object store that holds the sink did not answer in time, or is busy: call again. The request that failed
    changed nothing; what was done before stays.
    """

    retriable = True


class SinkWriteError(SinkError):
    """Writing failed, as on a full disk. Nothing became visible; ``__cause__`` is the system's error."""

    retriable = True


class PipelineError(KafkaError):
    """The pipeline stopped because it could not go on. What was committed stays; nothing was skipped."""

    # A task's reason has lines: those of a traceback.
    __str__ = Exception.__str__


class RangeFailedError(PipelineError):
    """Work on a range of offsets failed as often as it was to be tried. The message holds the last reason."""


class OffsetsGoneError(PipelineError):
    """Offsets that are to be read are not in the log any more: retention or deletion was quicker, or the log lost its
    end.
    """

    fatal = True
