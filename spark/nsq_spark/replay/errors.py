"""Errors of a replay. Each is one line, and can be sent between processes."""

from __future__ import annotations


class ReplayError(Exception):
    """The base of the errors that `nsq_spark.replay` raises itself."""


class BadJob(ReplayError):
    """The job asks for something impossible."""


class BadPredicate(BadJob):
    """The predicate is not valid SQL, or names columns that do not exist."""


class CheckpointError(ReplayError):
    """The checkpoint cannot be used: it is another job's, it is in use, or it cannot be read."""


class Stopped(ReplayError):
    """The driver asked to stop."""


class JobFailed(ReplayError):
    """Spark gave a job up."""
