"""Settings that may differ from topic to topic: `VALUE` for all, `PATTERN=VALUE` for topics of that name.

A pattern is a topic's name, in which `*` stands for any characters and `?` for one. The first rule that fits
decides; the value without a pattern is for all that no rule fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from nsqd_py.settings.types import Kind

_SUFFIX = ".dead"
_EPHEMERAL = "#ephemeral"
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class ByTopic:
    """`rules` as (pattern, value), in the order in which they were given."""

    otherwise: Any
    rules: tuple[tuple[str, Any], ...] = ()

    def of(self, topic: str) -> Any:
        """The value for a topic."""
        for pattern, value in self.rules:
            if fnmatchcase(topic, pattern):
                return value
        return self.otherwise


def by_topic(kind: Kind, otherwise: Any) -> Kind:
    """A kind whose values may differ by topic; `otherwise` is for those that nothing is said of."""

    def parse(text: str) -> tuple[str, Any]:
        pattern, equals, value = text.rpartition("=")
        if equals and not pattern:
            raise ValueError("expected a topic's name or pattern before the =")
        return pattern, kind.parse(value)

    def join(given: Sequence[tuple[str, Any]]) -> ByTopic:
        plain = [value for pattern, value in given if not pattern]
        return ByTopic(plain[-1] if plain else otherwise, tuple(rule for rule in given if rule[0]))

    def from_native(value: Any) -> ByTopic:
        items = value if isinstance(value, list) else [value]
        return join([parse(item) if isinstance(item, str) else ("", kind.from_native(item)) for item in items])

    def show(value: ByTopic) -> str:
        rules = [f"{pattern}={kind.show(one)}" for pattern, one in value.rules]
        return ",".join([*rules, kind.show(value.otherwise)])

    word = f"[topic=]{kind.word} ..."
    return Kind(word, parse, from_native, show, join=join, attribute_suffix=kind.attribute_suffix)


def every_value(check: Callable[[Any], str | None]) -> Callable[[ByTopic], str | None]:
    """A setting's check of single values, for all that there are."""

    def check_all(values: ByTopic) -> str | None:
        answers = map(check, [values.otherwise, *(value for _, value in values.rules)])
        return next((answer for answer in answers if answer), None)

    return check_all


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """What the settings say of one topic; 0, or no name, is: not.

    retention_ns, retention_bytes  what is kept of the log although it is finished
    max_attempts                   after so many a message goes to `dead_letter_topic`
    ttl_ns                         after so long a message is dropped
    max_bytes                      of its log; beyond it nothing is taken
    takes_dead_letters             there may be messages in it that another topic had before
    """

    retention_ns: int = 0
    retention_bytes: int = 0
    max_attempts: int = 0
    dead_letter_topic: str = ""
    ttl_ns: int = 0
    max_bytes: int = 0
    takes_dead_letters: bool = False


def policy_of(options: Any, topic: str) -> TopicPolicy:
    """The settings of `nsqd_py.options` for one topic."""
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


def takes_dead_letters(options: Any, topic: str) -> bool:
    """Whether the settings of `nsqd_py.options` may send dead letters to this topic, or did by default."""
    given = options.dead_letter_topic
    return dead_letter_topic(topic, "") == topic or topic in {given.otherwise, *(value for _, value in given.rules)}


def dead_letter_topic(topic: str, given: str) -> str:
    """Where a topic's dead letters go: `given`, else `<topic>.dead`, cut to what a name may have.

    The topic itself where it is one of dead letters: those stay.
    """
    if given:
        return given
    bare = topic.removesuffix(_EPHEMERAL)
    if bare.endswith(_SUFFIX):
        return topic
    suffix = _SUFFIX + topic[len(bare) :]
    return bare[: _LONGEST_NAME - len(suffix)] + suffix
