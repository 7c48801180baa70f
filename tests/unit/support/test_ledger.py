"""The ledger accepts correct histories, and names what is wrong in broken ones: each rule once, and mutated histories."""

from __future__ import annotations

import ast
import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.ledger import CHECKS, EXTRA_CHECKS, History, Operation, compare, judge, name_of, read_history
from tests.support.ledger.__main__ import main
from tests.support.ledger.history import Kind

SECOND = 1_000_000_000
TOPIC, CHANNEL = "orders", "billing"


class Scene:
    """A history that is written by hand; each operation takes a millisecond."""

    def __init__(self) -> None:
        self.now_ns = SECOND
        self.history = History(clock_ns=self._tick)
        self.history.created(TOPIC, CHANNEL)
        self._ids: dict[bytes, bytes] = {}

    def _tick(self) -> int:
        self.now_ns += SECOND // 1000
        return self.now_ns

    def publish(self, *bodies: bytes, defer_ns: int = 0, topic: str = TOPIC) -> None:
        self.history.ok(self.history.sending(topic, bodies, "publisher", defer_ns=defer_ns))

    def deliver(
        self,
        body: bytes,
        attempts: int = 1,
        *,
        channel: str = CHANNEL,
        client: str = "consumer",
        message_id: bytes = b"",
        epoch: int = 0,
        nsqd: str = "",
    ) -> int:
        own = self._ids.setdefault(body, b"%016x" % len(self._ids))
        return self.history.delivered(
            TOPIC, channel, body, client=client, nsqd=nsqd, epoch=epoch, message_id=message_id or own, attempts=attempts
        )

    def finish(self, body: bytes, attempts: int = 1, *, is_processed: bool = True) -> int:
        fin = self.history.fin(self.deliver(body, attempts))
        if is_processed:
            self.history.processed("consumer", fin)
        return fin

    def requeue(self, body: bytes, attempts: int = 1, delay_ms: int = 0) -> int:
        req = self.history.req(self.deliver(body, attempts), delay_ms)
        self.history.processed("consumer", req)
        return req

    def restart(self, *, is_clean: bool = False) -> None:
        if is_clean:
            self.history.stopped()
        else:
            self.history.killed()
        self.history.started()

    def rest(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)

    def cut(self, **parameters: int | bool) -> None:
        self.history.cut_ended(self.history.cut(TOPIC, CHANNEL, **parameters), is_answered=True)

    def drained(self) -> None:
        self.history.drained(TOPIC, CHANNEL)

    def found(self, *also: str) -> list[str]:
        """Return the names of the checks that found something."""
        return list(dict.fromkeys(finding.check for finding in judge(self.history, also=also).findings))


# ---- what is correct


def one_of_everything(scene: Scene) -> None:
    """Finished, requeued, timed out, refused, unknown and deferred, over a kill and a stop."""
    history = scene.history
    scene.publish(b"1", b"2", b"3")
    scene.finish(b"1")
    scene.requeue(b"2", delay_ms=100)
    scene.deliver(b"3")
    history.refused(history.sending(TOPIC, [b"refused"], "publisher"))
    unknown = history.sending(TOPIC, [b"unknown 1", b"unknown 2"], "publisher")
    assert unknown
    scene.rest(1)
    scene.finish(b"2", 2)
    scene.restart()
    scene.publish(b"deferred", defer_ns=SECOND)
    scene.finish(b"3", 2)
    scene.rest(1)
    scene.restart(is_clean=True)
    scene.finish(b"deferred")
    scene.drained()


def forgotten_shortly_before_a_kill(scene: Scene) -> None:
    scene.publish(b"1")
    scene.finish(b"1")
    scene.rest(0.3)
    scene.restart()
    scene.finish(b"1", 1)
    scene.drained()


def finished_after_it_had_timed_out(scene: Scene) -> None:
    """The FIN crosses the second delivery, and finishes it."""
    scene.publish(b"1")
    fin = scene.history.fin(scene.deliver(b"1"))
    scene.deliver(b"1", 2)
    scene.history.processed("consumer", fin)
    scene.drained()


def a_fin_that_was_refused(scene: Scene) -> None:
    scene.publish(b"1")
    fin = scene.history.fin(scene.deliver(b"1"))
    scene.history.denied(fin)
    scene.history.processed("consumer", fin)
    scene.finish(b"1", 2)
    scene.drained()


def two_consumers(scene: Scene) -> None:
    """What goes to two connections is in order on each of them."""
    scene.publish(b"1", b"2")
    scene.history.fin(scene.deliver(b"2", client="one"))
    scene.history.fin(scene.deliver(b"1", client="other"))
    scene.drained()


def a_channel_that_came_later(scene: Scene) -> None:
    """It may have the messages of before, or not."""
    scene.publish(b"1")
    scene.history.created(TOPIC, "late")
    scene.finish(b"1")
    scene.history.drained(TOPIC, CHANNEL, "late")


def emptied(scene: Scene) -> None:
    scene.publish(b"1")
    scene.rest(1)
    scene.cut()
    scene.drained()


def emptied_without_an_answer(scene: Scene) -> None:
    scene.publish(b"1")
    scene.history.cut(TOPIC, CHANNEL)
    scene.restart()
    scene.finish(b"1")
    scene.drained()


def emptied_before_the_clock_was_set_back(scene: Scene) -> None:
    """What was published after it has an earlier time."""
    scene.cut()
    scene.rest(-0.01)
    scene.publish(b"1")
    scene.restart()
    scene.finish(b"1")
    scene.drained()


def brought_back_by_a_seek(scene: Scene) -> None:
    scene.publish(b"1")
    scene.finish(b"1")
    scene.cut(before_ns=0, revives=True)
    scene.finish(b"1")
    scene.drained()


def not_drained_yet(scene: Scene) -> None:
    """Without a drain, a message that came may be unfinished."""
    scene.publish(b"1")
    scene.deliver(b"1")


def a_failover(scene: Scene) -> None:
    """The standby may lack what was finished shortly before."""
    for nsqd, epoch in (("a", 1), ("b", 2)):
        scene.history.ok(scene.history.sending(TOPIC, [b"%d" % epoch], "publisher"), nsqd, epoch)
        fin = scene.history.fin(scene.deliver(b"1", nsqd=nsqd, epoch=epoch))
        scene.history.processed("consumer", fin)
    scene.deliver(b"2", nsqd="b", epoch=2)


CORRECT = [
    one_of_everything,
    forgotten_shortly_before_a_kill,
    finished_after_it_had_timed_out,
    a_fin_that_was_refused,
    two_consumers,
    a_channel_that_came_later,
    emptied,
    emptied_before_the_clock_was_set_back,
    emptied_without_an_answer,
    brought_back_by_a_seek,
    not_drained_yet,
    a_failover,
]


@pytest.mark.parametrize("write", CORRECT)
def test_a_correct_history_is_accepted(write: Callable[[Scene], None]) -> None:
    scene = Scene()
    write(scene)
    judge(scene.history).require_sound()


# ---- what is broken


def never_came(scene: Scene) -> None:
    scene.publish(b"1", b"2")
    scene.finish(b"2")


def never_came_again(scene: Scene) -> None:
    scene.publish(b"1")
    scene.requeue(b"1")
    scene.drained()


def only_refused_fins(scene: Scene) -> None:
    scene.publish(b"1")
    scene.history.denied(scene.history.fin(scene.deliver(b"1")))
    scene.drained()


def sent_while_it_was_emptied_before(scene: Scene) -> None:
    """The cut had ended when it was sent."""
    scene.cut()
    scene.publish(b"1")
    scene.drained()


def not_brought_back_by_a_seek(scene: Scene) -> None:
    scene.publish(b"1")
    scene.finish(b"1")
    scene.cut(before_ns=0, revives=True)
    scene.drained()


def lost_in_one_channel(scene: Scene) -> None:
    scene.history.created(TOPIC, "other")
    scene.publish(b"1")
    scene.finish(b"1")


def published_where_no_channel_is_known(scene: Scene) -> None:
    scene.publish(b"1", topic="unknown")


def half_of_a_publish(scene: Scene) -> None:
    scene.history.sending(TOPIC, [b"1", b"2"], "publisher")
    scene.restart()
    scene.finish(b"1")
    scene.drained()


def published_by_nobody(scene: Scene) -> None:
    scene.finish(b"1")


def another_body(scene: Scene) -> None:
    scene.publish(b"x" * 100)
    scene.deliver(b"x" * 99 + b"y")
    scene.deliver(b"x" * 100)


def came_before_it_was_sent(scene: Scene) -> None:
    scene.deliver(b"1")
    scene.publish(b"1")


def the_id_of_another(scene: Scene) -> None:
    scene.publish(b"1", b"2")
    scene.finish(b"1")
    scene.deliver(b"2", message_id=b"%016x" % 0)


def another_id(scene: Scene) -> None:
    scene.publish(b"1")
    scene.deliver(b"1")
    scene.deliver(b"1", 2, message_id=b"%016x" % 99)


def another_id_in_another_channel(scene: Scene) -> None:
    scene.publish(b"1")
    scene.deliver(b"1")
    scene.deliver(b"1", channel="other", message_id=b"%016x" % 99)


def the_same_attempt_twice(scene: Scene) -> None:
    scene.publish(b"1")
    scene.deliver(b"1")
    scene.deliver(b"1", client="other")


def a_fin_that_came_back(scene: Scene) -> None:
    scene.publish(b"1")
    scene.finish(b"1")
    scene.finish(b"1", 2)


def a_fin_that_came_back_after_a_kill(scene: Scene) -> None:
    scene.publish(b"1")
    scene.finish(b"1")
    scene.rest(0.5)
    scene.restart()
    scene.finish(b"1")


def a_fin_that_came_back_some_kills_later(scene: Scene) -> None:
    scene.publish(b"1")
    scene.finish(b"1")
    scene.rest(0.5)
    scene.restart()
    scene.restart()
    scene.finish(b"1")


def a_fin_that_came_back_after_a_stop(scene: Scene) -> None:
    scene.publish(b"1")
    scene.finish(b"1")
    scene.restart(is_clean=True)
    scene.finish(b"1")


def emptied_and_came_back(scene: Scene) -> None:
    scene.publish(b"1")
    scene.cut()
    scene.restart(is_clean=True)
    scene.finish(b"1")


def the_second_before_the_first(scene: Scene) -> None:
    scene.publish(b"1")
    scene.publish(b"2")
    scene.finish(b"2")
    scene.finish(b"1")


def swapped_in_a_publish(scene: Scene) -> None:
    scene.publish(b"1", b"2", b"3")
    for body in (b"1", b"3", b"2"):
        scene.finish(body)


def before_it_was_due(scene: Scene) -> None:
    scene.publish(b"1", defer_ns=SECOND)
    scene.finish(b"1")


def before_its_requeue_delay_was_over(scene: Scene) -> None:
    scene.publish(b"1")
    scene.requeue(b"1", delay_ms=1000)
    scene.finish(b"1", 2)


def attempts_that_were_forgotten(scene: Scene) -> None:
    scene.publish(b"1")
    scene.requeue(b"1")
    scene.restart(is_clean=True)
    scene.finish(b"1", 1)


def an_old_primary(scene: Scene) -> None:
    scene.publish(b"1", b"2")
    scene.deliver(b"1", nsqd="b", epoch=2)
    scene.deliver(b"2", nsqd="a", epoch=1)


def two_primaries(scene: Scene) -> None:
    scene.publish(b"1", b"2")
    scene.deliver(b"1", nsqd="a", epoch=1)
    scene.deliver(b"2", nsqd="b", epoch=1)


BROKEN: dict[Callable[[Scene], None], str] = {
    never_came: "lost",
    never_came_again: "lost",
    only_refused_fins: "lost",
    sent_while_it_was_emptied_before: "lost",
    not_brought_back_by_a_seek: "lost",
    lost_in_one_channel: "lost",
    published_where_no_channel_is_known: "unjudged",
    half_of_a_publish: "torn",
    published_by_nobody: "unseen",
    another_body: "unseen",
    came_before_it_was_sent: "unseen",
    the_id_of_another: "unseen",
    another_id: "doubled",
    another_id_in_another_channel: "doubled",
    the_same_attempt_twice: "doubled",
    a_fin_that_came_back: "repeated",
    a_fin_that_came_back_after_a_kill: "repeated",
    a_fin_that_came_back_some_kills_later: "repeated",
    a_fin_that_came_back_after_a_stop: "repeated",
    emptied_and_came_back: "revived",
    the_second_before_the_first: "reordered",
    swapped_in_a_publish: "reordered",
    before_it_was_due: "early",
    before_its_requeue_delay_was_over: "early",
    attempts_that_were_forgotten: "early",
    an_old_primary: "late",
    two_primaries: "shared",
}


@pytest.mark.parametrize("write", BROKEN)
def test_a_broken_history_is_rejected_by_its_rule_alone(write: Callable[[Scene], None]) -> None:
    scene = Scene()
    write(scene)
    assert scene.found() == [BROKEN[write]]
    with pytest.raises(AssertionError, match=f"1 {BROKEN[write]}"):
        judge(scene.history).require_sound()


def test_each_rule_has_a_history_that_breaks_it() -> None:
    assert set(BROKEN.values()) == set(CHECKS)


def test_a_finding_names_the_message_its_id_and_the_operations() -> None:
    scene = Scene()
    a_fin_that_came_back(scene)
    (finding,) = judge(scene.history).findings
    assert (finding.body, finding.id, finding.where) == ("1", "0" * 16, "orders/billing")
    operations = scene.history.operations()
    assert [operations[number].kind for number in finding.numbers] == ["fin", "processed", "delivered"]


def test_what_only_some_tests_demand() -> None:
    scene = Scene()
    forgotten_shortly_before_a_kill(scene)
    assert scene.found("twice") == ["twice"]
    assert judge(scene.history, journal_delay_s=0.2).of("repeated")
    assert set(EXTRA_CHECKS) == {"twice"}


def test_without_fins_that_were_answered_nothing_is_certain() -> None:
    scene = Scene()
    scene.publish(b"1")
    scene.finish(b"1", is_processed=False)
    scene.finish(b"1", 2)
    verdict = judge(scene.history).require_sound()
    assert (verdict.after_fin, verdict.again) == (1, 1)


def test_what_was_sent_is_compared_with_what_came() -> None:
    compare([b"1", b"2"], [b"2", b"1"]).require_sound()
    assert [str(finding.body) for finding in compare([b"1", b"2"], [b"2"]).of("lost")] == ["1"]
    assert compare([b"1"], [b"1", b"1"]).of("twice") and compare([b"1"], [b"1", b"3"]).of("unseen")
    more = compare([b"1"], [b"1", b"1"], at_least_once=True).require_sound()
    assert more.again == 1
    with pytest.raises(ValueError, match="1 is published twice"):
        compare([b"1", b"1"], [b"1"])


# ---- a mutated history


def a_life(chance: random.Random, count: int) -> list[Operation]:
    """Publish, consume in order, requeue some, restart now and then; drain at the end."""
    scene = Scene()
    for number in range(count):
        scene.publish(b"%d-a" % number, b"%d-b" % number)
        for body in (b"%d-a" % number, b"%d-b" % number):
            attempts = itertools.count(1)
            while chance.random() < 0.2:
                scene.requeue(body, next(attempts))
            scene.finish(body, next(attempts))
        if chance.random() < 0.2:
            scene.restart(is_clean=True)
    scene.drained()
    return scene.history.operations()


def deliveries_of(operations: list[Operation], *, only_first: bool = False) -> list[int]:
    """Return where deliveries of messages are that came once, or all of them."""
    places = [place for place, operation in enumerate(operations) if operation.kind == Kind.DELIVERED]
    if not only_first:
        return places
    bodies = [operations[place].bodies for place in places]
    return [place for place in places if bodies.count(operations[place].bodies) == 1]


def drop(operations: list[Operation], chance: random.Random) -> None:
    """A message does not come."""
    place = chance.choice(deliveries_of(operations, only_first=True))
    gone = {operations[place].number, operations[place + 1].number}
    operations[:] = [operation for operation in operations if operation.number not in gone]


def forget(operations: list[Operation], chance: random.Random) -> None:
    """A FIN is refused, and the message does not come again."""
    place = chance.choice([place for place, operation in enumerate(operations) if operation.kind == Kind.FIN])
    operations.insert(place + 1, replace(operations[place], kind=Kind.DENIED, number=10**6, of=operations[place].number))


def duplicate(operations: list[Operation], chance: random.Random) -> None:
    """A delivery comes twice."""
    place = chance.choice(deliveries_of(operations))
    operations.insert(place + 1, replace(operations[place], number=10**6))


def copy(operations: list[Operation], chance: random.Random) -> None:
    """A message comes once more, under another id."""
    place = chance.choice(deliveries_of(operations))
    operations.insert(place + 1, replace(operations[place], number=10**6, id="f" * 16, attempts=1))


def swap(operations: list[Operation], chance: random.Random) -> None:
    """Two messages come in each other's place, ids and all."""
    places = deliveries_of(operations, only_first=True)
    index = chance.randrange(len(places) - 1)
    one, other = places[index], places[index + 1]
    first, second = operations[one], operations[other]
    operations[one] = replace(second, number=first.number, at_ns=first.at_ns)
    operations[other] = replace(first, number=second.number, at_ns=second.at_ns)


def exchange_bodies(operations: list[Operation], chance: random.Random) -> None:
    """A message comes with the body of the one that came after it."""
    places = deliveries_of(operations)
    index = chance.randrange(len(places) - 1)
    one, other = places[index], places[index + 1]
    if operations[one].bodies == operations[other].bodies:
        return alter(operations, chance)
    operations[one] = replace(operations[one], bodies=operations[other].bodies)
    return None


def alter(operations: list[Operation], chance: random.Random) -> None:
    """A message comes with another body."""
    place = chance.choice(deliveries_of(operations))
    operations[place] = replace(operations[place], bodies=(operations[place].bodies[0] + "?",))


def resurrect(operations: list[Operation], chance: random.Random) -> None:
    """A message comes again at the end, although its FIN was processed."""
    place = chance.choice(deliveries_of(operations))
    last = [operation for operation in operations if operation.bodies == operations[place].bodies][-1]
    number = operations[-1].number
    again = [
        replace(last, number=number + 1, attempts=last.attempts + 1),
        Operation(Kind.FIN, number + 2, last.at_ns, of=number + 1),
    ]
    operations += [*again, replace(operations[-1], number=number + 3)]


MUTATIONS = {
    drop: {"lost"},
    forget: {"lost"},
    duplicate: {"doubled"},
    copy: {"doubled"},
    swap: {"reordered", "unseen"},  # the latter where one of them was not sent yet
    exchange_bodies: {"unseen", "doubled"},  # the former where one of them comes again with its own id
    alter: {"unseen"},
    resurrect: {"repeated"},
}


@settings(max_examples=examples(200))
@given(st.integers(0, 1 << 30), st.sampled_from(sorted(MUTATIONS, key=lambda mutation: mutation.__name__)))
def test_each_mutation_of_a_correct_history_is_found(seed: int, mutate: Callable[[list[Operation], random.Random], None]) -> None:
    chance = random.Random(seed)
    operations = a_life(chance, chance.randrange(10, 20))
    assert judge(operations).findings == []
    mutate(operations, chance)
    found = {finding.check for finding in judge(operations).findings}
    assert MUTATIONS[mutate] & found, (mutate.__name__, found)


# ---- files


def test_a_killed_writer_leaves_a_history_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.created(TOPIC, CHANNEL)
    history.ok(history.sending(TOPIC, [b"1"]))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert len(read_history(path)) == whole[:size].count(b"\n")
    path.write_bytes(whole[:10] + b"\n" + whole)
    with pytest.raises(ValueError, match="line 1 is no operation"):
        read_history(path)


def test_a_history_is_the_same_in_memory_and_in_a_file(tmp_path: Path) -> None:
    found = []
    for path in (None, tmp_path / "history.jsonl"):
        scene = Scene()
        scene.history = History(path, clock_ns=scene._tick)
        one_of_everything(scene)
        found.append(scene.history.operations())
    assert found[0] == found[1]
    with pytest.raises(FileExistsError):
        History(tmp_path / "history.jsonl")


def test_threads_that_write_at_once_leave_whole_lines_in_order(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")

    def write(name: str) -> None:
        for number in range(200):
            publish = history.sending(TOPIC, [f"{name}-{number}".encode()], name)
            history.ok(publish)

    threads = [threading.Thread(target=partial(write, f"t{number}")) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    operations = history.operations()
    assert [operation.number for operation in operations] == list(range(1600))
    assert [operation.at_ns for operation in operations] == sorted(operation.at_ns for operation in operations)
    assert (history.sent, history.acknowledged) == (800, 800)


def test_names_tell_bodies_apart() -> None:
    bodies = [b"", b"1", b"\n", b"\\n", "é".encode(), b"\xff", b"x" * 40, b"x" * 41, b"x" * 40 + b"y", b"x" * 24 + b"~41~"]
    assert len(set(map(name_of, bodies))) == len(bodies)
    assert name_of(b"short text") == "short text"
    assert name_of(b"x" * 41).startswith("x" * 24 + "~41~")


@pytest.mark.parametrize(("write", "status"), [(one_of_everything, 0), (never_came, 1)])
def test_the_command_checks_a_file(tmp_path: Path, write: Callable[[Scene], None], status: int) -> None:
    path = tmp_path / "history.jsonl"
    scene = Scene()
    scene.history = History(path, clock_ns=scene._tick)
    scene.history.created(TOPIC, CHANNEL)
    write(scene)
    done = CliRunner().invoke(main, [str(path)])
    assert done.exit_code == status
    assert ("lost: orders/billing: 1 was acknowledged and never came" in done.output) == bool(status)


def test_the_command_refuses_a_file_that_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("text\n")
    assert CliRunner().invoke(main, [str(path)]).exit_code == 2


def test_a_verdict_shows_the_operations_of_what_it_found() -> None:
    """The history may be gone when somebody looks."""
    history = History()
    history.created("t", "c")
    for body in (b"emptied", b"other"):
        history.ok(history.sending("t", [body]))
    history.cut_ended(history.cut("t", "c"), is_answered=True)
    history.killed()
    history.started()
    history.delivered("t", "c", b"emptied")
    shown = [line.strip() for line in judge(history).lines() if line.startswith("    ")]
    assert [ast.literal_eval(line)["kind"] for line in shown] == [
        "sending",
        "ok",
        "cut",
        "cut ended",
        "killed",
        "started",
        "delivered",
    ]
    assert "other" not in "".join(shown)
