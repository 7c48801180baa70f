"""The verdict on a history: all findings, and how much there was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from tests.support.ledger.checks import CHECKS, EXTRA_CHECKS, Finding, came_after_fin, lost
from tests.support.ledger.history import History, Kind, Operation
from tests.support.ledger.story import JOURNAL_DELAY_S, Story, tell

_SHOWN = 20
_LONGEST_LINE = 400


@dataclass
class Verdict:
    """What a history shows. `source` names it; `operations` are those of the history."""

    story: Story
    findings: list[Finding]
    source: str
    operations: Sequence[Operation] = ()

    # ---- counts

    @property
    def published(self) -> int:
        return len(self.story.publishes)

    @property
    def acknowledged(self) -> int:
        return sum(1 for _ in self.story.acknowledged())

    @property
    def deliveries(self) -> int:
        return sum(len(channel.deliveries) for channel in self.story.channels.values())

    @property
    def again(self) -> int:
        """The number of deliveries beyond the first of each message in each channel."""
        return self.deliveries - sum(len(channel.courses) for channel in self.story.channels.values())

    @property
    def after_fin(self) -> int:
        """The number of deliveries for whose message a FIN had been sent, whether or not nsqd had got it."""
        channels = self.story.channels.values()
        return sum(
            1
            for channel in channels
            for course in channel.courses.values()
            for _ in came_after_fin(channel, course)
        )

    @property
    def most_deliveries(self) -> int:
        """The largest number of deliveries of one message to one channel."""
        channels = self.story.channels.values()
        return max(
            (len(course.deliveries) for channel in channels for course in channel.courses.values()), default=0
        )

    def counts(self) -> dict[str, int]:
        """Return the counts of a tally."""
        return {"acknowledged": self.acknowledged, "lost": len(self.of("lost")), "doubled": self.after_fin}

    # ---- findings

    def of(self, *checks: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.check in checks]

    def require_sound(self) -> Verdict:
        """Raise AssertionError with what was found, if anything was."""
        assert not self.findings, "\n".join(self.lines())
        return self

    def lines(self) -> Iterator[str]:
        """Yield the text of a verdict."""
        acknowledged = f"{self.acknowledged:,} of {self.published:,} messages acknowledged"
        yield f"{self.source}: {acknowledged}, {self.deliveries:,} deliveries, {self.story.kills:,} kills"
        if not self.findings:
            yield "nothing is wrong"
            return
        counts = Counter(finding.check for finding in self.findings)
        yield ", ".join(f"{count:,} {check}" for check, count in counts.items())
        for check in counts:
            found = self.of(check)
            yield from map(str, found[:_SHOWN])
            if len(found) > _SHOWN:
                yield f"{check}: {len(found) - _SHOWN:,} more"
            yield from self._evidence(found[0])

    def _evidence(self, finding: Finding) -> Iterator[str]:
        """Yield the operations about the message of a finding, and what happened to its channel and to nsqd in between."""
        first, last = min(finding.numbers, default=0), max(finding.numbers, default=0)
        about = {operation.number for operation in self.operations if finding.body in operation.bodies} | set(
            finding.numbers
        )
        where = {finding.where, finding.where.partition("/")[0]}
        cuts: set[int] = set()
        for operation in self.operations:
            is_between = first <= operation.number <= last
            if (
                is_between
                and operation.kind == Kind.CUT
                and f"{operation.topic}/{operation.channel}" in where
            ):
                cuts.add(operation.number)
            is_of_nsqd = is_between and operation.kind in (Kind.KILLED, Kind.STOPPED, Kind.STARTED)
            if (
                is_of_nsqd
                or operation.number in cuts
                or {operation.number, operation.of} & about
                or operation.of in cuts
            ):
                values = {field.name: getattr(operation, field.name) for field in fields(operation)}
                told = {
                    field.name: values[field.name]
                    for field in fields(operation)
                    if values[field.name] != field.default
                }
                yield f"    {told}"[:_LONGEST_LINE]


def judge(
    history: History | Sequence[Operation],
    *,
    journal_delay_s: float = JOURNAL_DELAY_S,
    also: Iterable[str] = (),
    without: Iterable[str] = (),
    source: str = "",
) -> Verdict:
    """Apply all checks to a history.

    also       the names of EXTRA_CHECKS that hold here, too
    without    the names of CHECKS whose findings the caller judges otherwise
    """
    operations = history.operations() if isinstance(history, History) else history
    if not source:
        source = str(history.path) if isinstance(history, History) and history.path is not None else "history"
    story = tell(operations, journal_delay_s)
    skipped = set(without)
    assert skipped <= CHECKS.keys(), skipped
    checks = [check for name, check in CHECKS.items() if name not in skipped]
    checks += [EXTRA_CHECKS[name] for name in also]
    return Verdict(story, [finding for check in checks for finding in check(story)], source, operations)


def lost_so_far(history: History) -> list[Finding]:
    """Return what is lost unless it still comes, for tests that wait for it."""
    return list(lost(tell(history.operations())))


def compare(sent: Iterable[bytes], came: Iterable[bytes], *, at_least_once: bool = False) -> Verdict:
    """Judge what was sent and acknowledged, and what came: each message exactly once, unless told otherwise.

    For tests that have both as lists. Raises ValueError if two of the messages that were sent are the same.
    """
    history = History()
    topic, channel = "sent", "came"
    history.created(topic, channel)
    bodies = list(sent)
    if bodies:
        history.ok(history.sending(topic, bodies))
    for body in came:
        history.delivered(topic, channel, body)
    return judge(history, also=() if at_least_once else ("twice",), source="what was sent and what came")
