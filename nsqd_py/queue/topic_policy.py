"""The policy of a topic: retention, dead letters, time to live and size, as the options of nsqd set them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nsqd_py.settings.types import ByTopic

_SUFFIX = ".dead"
_EPHEMERAL = "#ephemeral"
_LONGEST_NAME = 64


class PolicyOptions(Protocol):
    """The options of nsqd that set policies."""

    @property
    def retention_time_ns(self) -> ByTopic[int]: ...
    @property
    def retention_bytes(self) -> ByTopic[int]: ...
    @property
    def max_attempts(self) -> ByTopic[int]: ...
    @property
    def dead_letter_topic(self) -> ByTopic[str]: ...
    @property
    def message_ttl_ns(self) -> ByTopic[int]: ...
    @property
    def max_topic_bytes(self) -> ByTopic[int]: ...


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The settings of one topic; 0 or "" turns one off.

    retention_ns, retention_bytes: how much of the log is kept after all channels have finished it.
    max_attempts: after this number of attempts a message is moved to `dead_letter_topic`.
    ttl_ns: the time to live of a message.
    max_bytes: the size of the log at which publishes are refused.
    takes_dead_letters: the topic can contain messages that were moved from another topic.
    """

    retention_ns: int = 0
    retention_bytes: int = 0
    max_attempts: int = 0
    dead_letter_topic: str = ""
    ttl_ns: int = 0
    max_bytes: int = 0
    takes_dead_letters: bool = False


def policy_of(options: PolicyOptions, topic: str) -> TopicPolicy:
    """Return the policy of a topic."""
    dead_letters = dead_letter_topic(topic, options.dead_letter_topic.of(topic))
    return TopicPolicy(
        retention_ns=options.retention_time_ns.of(topic),
        retention_bytes=options.retention_bytes.of(topic),
        max_attempts=options.max_attempts.of(topic) if dead_letters != topic else 0,
        dead_letter_topic=dead_letters,
        ttl_ns=options.message_ttl_ns.of(topic),
        max_bytes=options.max_topic_bytes.of(topic),
        takes_dead_letters=takes_dead_letters(options, topic),
    )


def takes_dead_letters(options: PolicyOptions, topic: str) -> bool:
    """True if the options can send dead letters to this topic, or if it has the name of a default dead letter topic."""
    return dead_letter_topic(topic, "") == topic or topic in options.dead_letter_topic.values


def dead_letter_topic(topic: str, given: str) -> str:
    """Return the topic that receives a topic's dead letters: `given`, or `<topic>.dead`, cut to the longest valid name.

    A dead letter topic keeps its own dead letters: the result is the topic itself.
    """
    if given:
        return given
    bare = topic.removesuffix(_EPHEMERAL)
    if bare.endswith(_SUFFIX):
        return topic
    suffix = _SUFFIX + topic[len(bare) :]
    return bare[: _LONGEST_NAME - len(suffix)] + suffix
