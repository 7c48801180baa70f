"""The limits from which on something is a problem. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsqd_py.cluster.problems.of_standbys import LAGGING_AFTER_S
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.kinds import ByTopic

DEFAULT_MAX_MESSAGE_AGE_NS = 10 * MINUTE_NS

# Messages wait, consumers are connected, and nothing was finished for this long.
STUCK_AFTER_S = 60.0
# A channel may be without consumers for this long while they restart, and one nsqd for longer: they ask nsqlookupd
# once a minute.
CONSUMERS_RETURN_S = 30.0
CONSUMERS_FIND_NSQD_S = 90.0
# A message with this many attempts is one that no consumer can finish.
MANY_ATTEMPTS = 20
# An nsqd that was started so often in this time ends again and again.
MANY_STARTS = 4
STARTS_WITHIN_S = 600.0
CLOCK_DIFFERENCE_S = 30
CERTIFICATE_WARNING_S = 14 * 86400.0
CERTIFICATE_ERROR_S = 3 * 86400.0


def check_ages(ages_ns: ByTopic[int]) -> str | None:
    """Return what is wrong with a setting by topic whose values are ages; None if nothing is."""
    if any(age_ns < 0 for age_ns in ages_ns.values):
        return "must not be negative"
    return None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that an operator sets.

    max_message_age_ns  age of the oldest waiting message, by topic; 0 means none
    lagging_after_s     age of the oldest change that a standby lacks
    slow_answers        slow answers without a break that are a problem: the first one after a stop says nothing
    observer            the program that observes, as sentences name it
    """

    max_message_age_ns: ByTopic[int] = field(default_factory=lambda: ByTopic(DEFAULT_MAX_MESSAGE_AGE_NS))
    lagging_after_s: float = LAGGING_AFTER_S
    slow_answers: int = 2
    observer: str = "nsqadmin"

    def max_age_s(self, topic: str) -> float:
        """Return the age from which a waiting message of this topic is old; 0 if it never is."""
        return self.max_message_age_ns.of(topic) / SECOND_NS
