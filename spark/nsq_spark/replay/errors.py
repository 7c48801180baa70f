"""What can be wrong with a replay. Each is one line, and can be sent between processes."""

from __future__ import annotations


class ReplayError(Exception):
    """Base of what `nsq_spark.replay` raises itself."""


class BadJob(ReplayError):
    """The job asks for what cannot be done."""


class BadPredicate(BadJob):
    """The predicate is no SQL, or no predicate over what there is."""


class CheckpointError(ReplayError):
    """The checkpoint cannot be used: another job's, in use, or not readable."""


class GaveUp(ReplayError):
    """No nsqd took what was to be sent, for as long as it was tried."""


class Refused(ReplayError):
    """nsqd refuses what is asked of it, and would again: a topic, a secret."""


class Stopped(ReplayError):
    """The driver asked to stop."""
