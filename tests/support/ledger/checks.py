"""The rules of a history. Each check returns what breaks its rule; its docstring is the rule.

A message that must come to a channel is one that nsqd acknowledged, that was sent after the channel was there, and that
no cut (emptying, deleting, seeking) may have taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tests.support.ledger.cuts import Fate
from tests.support.ledger.serving import Serving
from tests.support.ledger.story import Answer, Channel, Course, Delivery, Publish, Server, Story

# The wall clock is set by small steps all the time; nsqd's clock of deadlines runs evenly.
CLOCKS_DIFFER_NS = 5_000_000


class Finding(NamedTuple):
    """One breach of a rule. `numbers` are the operations that show it, the breach itself last."""

    check: str
    where: str
    body: str
    what: str
    numbers: tuple[int, ...]
    id: str = ""

    def __str__(self) -> str:
        message = f"{self.body} (id {self.id})" if self.id else self.body
        operations = ", ".join(map(str, self.numbers))
        return f"{self.check}: {self.where}: {message} {self.what} [operations {operations}]"


# ---- what has to come


def lost(story: Story) -> Iterator[Finding]:
    """A message that must come has not come.

    In a channel that was drained since it was sent, its last delivery must also have been finished: a FIN was sent for
    it and not refused. (A FIN names a message: one that was sent for the delivery before, and that nsqd had not
    processed when the message came again, counts.) A FIN that was sent before an answered seek does not count for what the
    seek revives; one that was sent during the seek may name a message that is queued again.
    """
    acknowledged: dict[str, list[Publish]] = {}
    for publish in story.acknowledged():
        acknowledged.setdefault(publish.topic, []).append(publish)
    for channel in story.channels.values():
        if channel.created is None:
            continue
        for publish in acknowledged.get(channel.topic, ()):
            if publish.number < channel.created:
                continue
            why = _why_lost(channel, publish)
            if why and channel.fate(publish) is Fate.MUST_COME:
                course = channel.courses.get(publish.body)
                delivered = course.deliveries if course else []
                numbers = (publish.number, *(delivery.number for delivery in delivered))
                yield _finding("lost", channel, publish.body, why, numbers, delivered)


def _why_lost(channel: Channel, publish: Publish) -> str:
    course = channel.courses.get(publish.body)
    if course is None:
        return "was acknowledged and never came"
    if channel.drained is None or channel.drained < publish.number:
        return ""
    finish = _last_finish(course)
    if finish is None:
        return "came, was not finished, and did not come again"
    finished_ns = max(finish.at_ns, course.deliveries[-1].at_ns)
    if finished_ns < _revived_ns(channel, publish):
        return "was finished, and did not come again after a seek"
    return ""


def _last_finish(course: Course) -> Answer | None:
    """Return a FIN that finished the last delivery, or may have."""
    last = course.deliveries[-1]
    for answer in course.answers_since(-1):
        is_crossing = answer.delivery.server == last.server and not 0 < answer.processed_number < last.number
        if answer.is_fin and (answer.number > last.number or is_crossing):
            return answer
    return None


def _revived_ns(channel: Channel, publish: Publish) -> int:
    seeks = [
        cut for cut in channel.cuts if cut.revives and cut.is_answered and publish.sent_ns >= cut.before_ns
    ]
    return max((cut.start_ns for cut in seeks), default=0)


def unjudged(story: Story) -> Iterator[Finding]:
    """Messages were acknowledged in a topic of which no channel was noted as created: nothing would find a loss."""
    judged = {channel.topic for channel in story.channels.values() if channel.created is not None}
    for topic in sorted({publish.topic for publish in story.acknowledged()} - judged):
        yield Finding("unjudged", topic, "", "has acknowledged messages and no channel that was created", ())


def torn(story: Story) -> Iterator[Finding]:
    """Of a publish of several messages that was not acknowledged, some came and some did not.

    Judged in channels that were there before it, that were drained since, and that nobody cut.
    """
    groups: dict[tuple[str, int], list[Publish]] = {}
    for publish in story.publishes.values():
        if publish.answered_ns is None and publish.size > 1 and not publish.resends:
            groups.setdefault((publish.topic, publish.number), []).append(publish)
    for channel in story.channels.values():
        if channel.cuts or channel.created is None or channel.drained is None:
            continue
        for (topic, number), group in groups.items():
            if topic == channel.topic and channel.created < number < channel.drained:
                came = [publish for publish in group if publish.body in channel.courses]
                if came and len(came) < len(group):
                    what = f"came with {len(came) - 1} of the other {len(group) - 1} messages of its publish"
                    yield _finding("torn", channel, came[0].body, what, (number,), [])


# ---- what must not come


def unseen(story: Story) -> Iterator[Finding]:
    """A message came that nobody had published to this topic, or with a body that is not the published one.

    Or its id had come with another body, from the same nsqd.
    """
    bodies: dict[tuple[str, str, str], tuple[str, int]] = {}
    for channel in story.channels.values():
        for delivery, course in channel.deliveries:
            publish = course.publish
            if publish is None or publish.number > delivery.number:
                yield _finding(
                    "unseen", channel, course.body, "was never published", (delivery.number,), [delivery]
                )
            if not delivery.id:
                continue
            key = delivery.server.nsqd, channel.topic, delivery.id
            body, number = bodies.setdefault(key, (course.body, delivery.number))
            if body != course.body:
                what = f"has the id of {body}"
                yield _finding("unseen", channel, course.body, what, (number, delivery.number), [delivery])


def doubled(story: Story) -> Iterator[Finding]:
    """A message was there twice.

    It came with another id or timestamp than before, in whatever channel, though its publisher sent it once. Or it came
    twice with the same number of attempts from one life of an nsqd, in a channel that nobody had cut: each delivery
    counts one more.
    """
    identities: dict[tuple[str, str], Delivery] = {}
    for channel in story.channels.values():
        for course in channel.courses.values():
            publish = course.publish
            for delivery in course.deliveries:
                first = (
                    identities.setdefault((channel.topic, course.body), delivery) if delivery.id else delivery
                )
                is_same = (first.id, first.timestamp_ns) == (delivery.id, delivery.timestamp_ns)
                if not is_same and publish is not None and not publish.resends:
                    what = f"came before with the id {first.id} and the timestamp {first.timestamp_ns}"
                    yield _finding(
                        "doubled", channel, course.body, what, (first.number, delivery.number), [delivery]
                    )
            if len(course.deliveries) > 1:
                yield from _same_attempts(channel, course)


def _same_attempts(channel: Channel, course: Course) -> Iterator[Finding]:
    seen: dict[tuple[Server, str, int], Delivery] = {}
    for delivery in course.deliveries:
        if not delivery.attempts or not delivery.client or not channel.is_uncut(delivery):
            continue
        before = seen.setdefault((delivery.server, delivery.id, delivery.attempts), delivery)
        if before is not delivery:
            what = f"came twice as attempt {delivery.attempts} from one life of nsqd"
            yield _finding(
                "doubled", channel, course.body, what, (before.number, delivery.number), [delivery]
            )


def repeated(story: Story) -> Iterator[Finding]:
    """A message came again after its FIN was certainly processed and written down (a FIN that came back).

    Processed: the consumer had sent something after the FIN, and had read the answer. Written down: the same life of
    nsqd goes on; or it had ended with status 0; or it was killed later than the allowance after that (`journal_delay_s`,
    0.4 s unless a test says otherwise; nsqd writes journals each 0.1 s). A FIN that nsqd refused does not count, nor one
    from before a seek that brings messages back.
    """
    for channel in story.channels.values():
        for course in channel.courses.values():
            for finish, delivery in came_after_fin(channel, course):
                if story.has_kept(finish, delivery):
                    numbers = finish.number, finish.processed_number, delivery.number
                    what = "came again after its FIN was processed and written down"
                    yield _finding("repeated", channel, course.body, what, numbers, [delivery])


def came_after_fin(channel: Channel, course: Course) -> Iterator[tuple[Answer, Delivery]]:
    """Yield the deliveries of a message behind the FINs of the deliveries before them, unless a seek brought them back."""
    for before, delivery in zip(course.deliveries, course.deliveries[1:], strict=False):
        finish = next(
            (
                one
                for one in course.answers_since(before.number)
                if one.is_fin and one.number < delivery.number
            ),
            None,
        )
        if finish is not None and not any(
            cut.revives and cut.end_ns >= finish.delivery.at_ns for cut in channel.cuts
        ):
            yield finish, delivery


def revived(story: Story) -> Iterator[Finding]:
    """A message came in a later life of nsqd than a cut that certainly took it. In the life of the cut it may have been
    on its way.
    """
    for channel in story.channels.values():
        if not channel.cuts:
            continue
        for course in channel.courses.values():
            if course.publish is not None:
                yield from _deliveries_of_the_gone(channel, course, course.publish)


def _deliveries_of_the_gone(channel: Channel, course: Course, publish: Publish) -> Iterator[Finding]:
    fates = list(channel.fates(publish))
    for delivery in course.deliveries:
        before = [(cut, fate) for cut, fate in fates if cut.number < delivery.number]
        if before and before[-1][1] is Fate.GONE and before[-1][0].life < delivery.server.life:
            numbers = publish.number, before[-1][0].number, delivery.number
            yield _finding(
                "revived", channel, course.body, "came although it was emptied", numbers, [delivery]
            )


# ---- how it comes


def reordered(story: Story) -> Iterator[Finding]:
    """A message came before one that the same connection had published earlier.

    Judged for messages that come for the first time, as the first attempt and not deferred, on one connection of a
    consumer, from one life of an nsqd, in a channel that nobody had cut. What was requeued, timed out, or in flight when
    nsqd ended comes out of order.
    """
    for channel in story.channels.values():
        newest: dict[tuple[str, Server, str], tuple[Publish, Delivery]] = {}
        for delivery, course in channel.deliveries:
            publish = course.publish
            if (
                publish is None
                or not channel.is_uncut(delivery)
                or not _is_in_order(delivery, course, publish)
            ):
                continue
            key = delivery.client, delivery.server, publish.client
            last, last_delivery = newest.get(key, (publish, delivery))
            if (publish.number, publish.index) < (last.number, last.index):
                what = f"came after {last.body}, which was published later"
                yield _finding(
                    "reordered",
                    channel,
                    course.body,
                    what,
                    (last_delivery.number, delivery.number),
                    [delivery],
                )
            else:
                newest[key] = publish, delivery


def _is_in_order(delivery: Delivery, course: Course, publish: Publish) -> bool:
    is_first = delivery is course.deliveries[0] and delivery.attempts == 1
    has_names = bool(delivery.client and publish.client)
    return is_first and has_names and not publish.defer_ns and not publish.resends


def early(story: Story) -> Iterator[Finding]:
    """A deferred message came before it was due; or one that was requeued came before its delay was over, or without
    one more attempt.

    A REQ counts if it was processed and written down, as for `repeated`, in a channel that nobody had cut.
    """
    for channel in story.channels.values():
        for course in channel.courses.values():
            if course.publish is not None and course.publish.defer_ns:
                yield from _before_due(channel, course, course.publish)
            if course.answers:
                yield from _after_requeues(story, channel, course)


def _before_due(channel: Channel, course: Course, publish: Publish) -> Iterator[Finding]:
    due_ns = publish.sent_ns + publish.defer_ns
    for delivery in course.deliveries:
        if delivery.at_ns < due_ns - CLOCKS_DIFFER_NS:
            yield _early(channel, course, "came before it was due", publish.number, delivery)


def _after_requeues(story: Story, channel: Channel, course: Course) -> Iterator[Finding]:
    for before, delivery in zip(course.deliveries, course.deliveries[1:], strict=False):
        answers = [
            answer for answer in course.answers_since(before.number) if answer.number < delivery.number
        ]
        if (
            not answers
            or answers[-1].is_fin
            or not story.has_kept(answers[-1], delivery)
            or not channel.is_uncut(delivery)
        ):
            continue
        requeue = answers[-1]
        if delivery.attempts and delivery.attempts <= before.attempts:
            what = f"came as attempt {delivery.attempts} after attempt {before.attempts} was requeued"
            yield _early(channel, course, what, requeue.number, delivery)
        if delivery.at_ns < requeue.at_ns + requeue.delay_ns - CLOCKS_DIFFER_NS:
            yield _early(channel, course, "came before its requeue delay was over", requeue.number, delivery)


def _early(channel: Channel, course: Course, what: str, number: int, delivery: Delivery) -> Finding:
    return _finding("early", channel, course.body, what, (number, delivery.number), [delivery])


# ---- who served


def late(story: Story) -> Iterator[Finding]:
    """An nsqd acknowledged or delivered something after a primary of a later epoch had."""
    for late in _serving(story).late:
        operation = late.operation
        body = operation.bodies[0] if operation.bodies else ""
        yield Finding(
            "late", operation.nsqd, body, str(late), (late.first.number, operation.number), operation.id
        )


def shared(story: Story) -> Iterator[Finding]:
    """Two nsqds served in one epoch."""
    for epoch, firsts in _serving(story).shared().items():
        nsqds = sorted(first.nsqd for first in firsts)
        numbers = tuple(first.number for first in firsts)
        yield Finding("shared", f"epoch {epoch}", "", f"was served by {nsqds}", numbers)


def _serving(story: Story) -> Serving:
    serving = Serving()
    for operation in story.served:
        serving.see(operation)
    return serving


# ---- for tests of what must come exactly once


def twice(story: Story) -> Iterator[Finding]:
    """A message came more than once to a channel, for whatever reason."""
    for channel in story.channels.values():
        for course in channel.courses.values():
            if len(course.deliveries) > 1:
                numbers = tuple(delivery.number for delivery in course.deliveries)
                what = f"came {len(course.deliveries)} times"
                yield _finding("twice", channel, course.body, what, numbers, course.deliveries[-1:])


def _finding(
    check: str, channel: Channel, body: str, what: str, numbers: tuple[int, ...], some: list[Delivery]
) -> Finding:
    return Finding(check, str(channel), body, what, numbers, some[-1].id if some else "")


Check = Callable[[Story], Iterator[Finding]]

# What holds for every history, and what a test may demand in addition.
CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (lost, unjudged, torn, unseen, doubled, repeated, revived, reordered, early, late, shared)
}
EXTRA_CHECKS: Mapping[str, Check] = {check.__name__: check for check in (twice,)}
