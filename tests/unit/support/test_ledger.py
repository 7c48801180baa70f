"""The ledger accepts correct histories, and names what is wrong in broken ones: each rule once, and mutated histories."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.ledger import (
    CHECKS,
    EXTRA_CHECKS,
    History,
    Operation,
    compare,
    judge,
    name_of,
    read_history,
)
from tests.support.ledger.__main__ import main
from tests.support.ledger.history import Kind
from tests.support.together import run_in_threads

SECOND = 1_000_000_000
TOPIC, CHANNEL = "orders", "billing"


class Scene:
    """A history that is written by hand; each operation takes a millisecond. Its public methods are the words of stories."""

    def __init__(self, path: Path | None = None) -> None:
        self.now_ns = SECOND
        self.history = History(path, clock_ns=self._tick)
        self.created(CHANNEL)
        self._ids: dict[str, bytes] = {}
        self._answer = 0

    def _tick(self) -> int:
        self.now_ns += SECOND // 1000
        return self.now_ns

    def play(self, story: str) -> Scene:
        """Do one step after the other: a method, its arguments, and those that are given by name."""
        for step in story.split(";"):
            method, *words = step.split()
            named = dict(word.split("=") for word in words if "=" in word)
            numbers = {name: int(word) if word.isdigit() else word for name, word in named.items()}
            getattr(self, method)(*[word for word in words if "=" not in word], **numbers)
        return self

    def created(self, channel: str) -> None:
        self.history.created(TOPIC, channel)

    def sending(self, *bodies: str, topic: str = TOPIC, defer_ms: int = 0) -> int:
        """Without an answer, its outcome is unknown."""
        return self.history.sending(
            topic, map(str.encode, bodies), "publisher", defer_ns=defer_ms * 1_000_000
        )

    def publish(self, *bodies: str, nsqd: str = "", epoch: int = 0, **sending: Any) -> None:
        self.history.ok(self.sending(*bodies, **sending), nsqd, epoch)

    def refused(self, body: str) -> None:
        self.history.refused(self.sending(body))

    def deliver(
        self,
        body: str,
        attempts: str = "1",
        *,
        channel: str = CHANNEL,
        client: str = "consumer",
        id: int = -1,
        **served: Any,
    ) -> int:
        own = self._ids.setdefault(body, b"%016x" % len(self._ids))
        message_id = own if id < 0 else b"%016x" % id
        return self.history.delivered(
            TOPIC,
            channel,
            body.encode(),
            client=client,
            message_id=message_id,
            attempts=int(attempts),
            **served,
        )

    def fin(self, *delivery: str, **named: Any) -> None:
        self._answer = self.history.fin(self.deliver(*delivery, **named))

    def fin_during_seek(self, body: str) -> None:
        """The message was in flight when the seek took it back, and its FIN named what is queued."""
        delivery = self.deliver(body)
        cut = self.history.cut(TOPIC, CHANNEL, before_ns=0, revives=True)
        self.history.fin(delivery)
        self.history.cut_ended(cut, is_answered=True)

    def processed(self) -> None:
        self.history.processed("consumer", self._answer)

    def denied(self) -> None:
        self.history.denied(self._answer)

    def finish(self, *delivery: str, **named: Any) -> None:
        self.fin(*delivery, **named)
        self.processed()

    def requeue(self, *delivery: str, delay_ms: int = 0) -> None:
        self._answer = self.history.req(self.deliver(*delivery), delay_ms)
        self.processed()

    def kill(self) -> None:
        """And start again."""
        self.history.killed()
        self.history.started()

    def stop(self) -> None:
        """And start again."""
        self.history.stopped()
        self.history.started()

    def rest(self, seconds: str) -> None:
        self.now_ns += round(float(seconds) * SECOND)

    def begin_cut(self, **parameters: int) -> int:
        return self.history.cut(TOPIC, CHANNEL, **parameters)

    def cut(self, **parameters: int) -> None:
        self.history.cut_ended(self.begin_cut(**parameters), is_answered=True)

    def drained(self, *channels: str) -> None:
        self.history.drained(TOPIC, CHANNEL, *channels)

    def found(self, *also: str) -> list[str]:
        """Return the names of the checks that found something."""
        return list(dict.fromkeys(finding.check for finding in judge(self.history, also=also).findings))


# ---- what is correct

ONE_OF_EVERYTHING = """publish 1 2 3; finish 1; requeue 2 delay_ms=100; deliver 3; refused no; sending 4 5; rest 1;
    finish 2 2; kill; publish deferred defer_ms=1000; finish 3 2; rest 1; stop; finish deferred; drained"""
FORGOTTEN = "publish 1; finish 1; rest 0.3; kill; finish 1; drained"
CORRECT = {
    "one of everything": ONE_OF_EVERYTHING,
    "forgotten shortly before a kill": FORGOTTEN,
    # The FIN crosses the second delivery, and finishes it.
    "finished after it had timed out": "publish 1; fin 1; deliver 1 2; processed; drained",
    "a FIN that was refused": "publish 1; fin 1; denied; processed; finish 1 2; drained",
    # What goes to two connections is in order on each of them.
    "two consumers": "publish 1 2; fin 2 client=one; fin 1 client=other; drained",
    # It may have the messages of before, or not.
    "a channel that came later": "publish 1; created late; finish 1; drained late",
    "emptied": "publish 1; rest 1; cut; drained",
    "emptied without an answer": "publish 1; begin_cut; kill; finish 1; drained",
    # What was published after the cut has an earlier time.
    "emptied before the clock was set back": "cut; rest -0.01; publish 1; kill; finish 1; drained",
    "brought back by a seek": "publish 1; finish 1; cut before_ns=0 revives=1; finish 1; drained",
    "finished while a seek went on": "publish 1; fin_during_seek 1; drained",
    # Without a drain, a message that came may be unfinished.
    "not drained yet": "publish 1; deliver 1",
    # The standby may lack what was finished shortly before.
    "a failover": """publish 1 nsqd=a epoch=1; finish 1 nsqd=a epoch=1; publish 2 nsqd=b epoch=2; finish 1 nsqd=b epoch=2;
        deliver 2 nsqd=b epoch=2""",
}


@pytest.mark.parametrize("story", CORRECT.values(), ids=CORRECT)
def test_a_correct_history_is_accepted(story: str) -> None:
    judge(Scene().play(story).history).require_sound()


# ---- what is broken

NEVER_CAME = "publish 1 2; finish 2"
CAME_BACK = "publish 1; finish 1; finish 1 2"
LONG = "x" * 99
BROKEN = {
    "lost": {
        "never came": NEVER_CAME,
        "never came again": "publish 1; requeue 1; drained",
        "only refused FINs": "publish 1; fin 1; denied; drained",
        "sent after it was emptied": "cut; publish 1; drained",
        "not brought back by a seek": "publish 1; finish 1; cut before_ns=0 revives=1; drained",
        "in one channel": "created other; publish 1; finish 1",
    },
    "unjudged": {"published where no channel is known": "publish 1 topic=unknown"},
    "torn": {"half of a publish": "sending 1 2; kill; finish 1; drained"},
    "unseen": {
        "published by nobody": "finish 1",
        "another body": f"publish {LONG}x; deliver {LONG}y; deliver {LONG}x",
        "came before it was sent": "deliver 1; publish 1",
        "the id of another": "publish 1 2; finish 1; deliver 2 id=0",
    },
    "doubled": {
        "another id": "publish 1; deliver 1; deliver 1 2 id=99",
        "another id in another channel": "publish 1; deliver 1; deliver 1 channel=other id=99",
        "the same attempt twice": "publish 1; deliver 1; deliver 1 client=other",
    },
    "repeated": {
        "a FIN that came back": CAME_BACK,
        "after a kill": "publish 1; finish 1; rest 0.5; kill; finish 1",
        "some kills later": "publish 1; finish 1; rest 0.5; kill; kill; finish 1",
        "after a stop": "publish 1; finish 1; stop; finish 1",
    },
    "revived": {"emptied and came back": "publish 1; cut; stop; finish 1"},
    "reordered": {
        "the second before the first": "publish 1; publish 2; finish 2; finish 1",
        "swapped in a publish": "publish 1 2 3; finish 1; finish 3; finish 2",
    },
    "early": {
        "before it was due": "publish 1 defer_ms=1000; finish 1",
        "before its requeue delay was over": "publish 1; requeue 1 delay_ms=1000; finish 1 2",
        "attempts that were forgotten": "publish 1; requeue 1; stop; finish 1",
    },
    "late": {"an old primary": "publish 1 2; deliver 1 nsqd=b epoch=2; deliver 2 nsqd=a epoch=1"},
    "shared": {"two primaries": "publish 1 2; deliver 1 nsqd=a epoch=1; deliver 2 nsqd=b epoch=1"},
}


@pytest.mark.parametrize(
    ("rule", "name"), [(rule, name) for rule, stories in BROKEN.items() for name in stories]
)
def test_a_broken_history_is_rejected_by_its_rule_alone(rule: str, name: str) -> None:
    scene = Scene().play(BROKEN[rule][name])
    assert scene.found() == [rule]
    with pytest.raises(AssertionError, match=f"1 {rule}"):
        judge(scene.history).require_sound()


def test_each_rule_has_a_history_that_breaks_it() -> None:
    assert BROKEN.keys() == set(CHECKS)


def test_a_finding_names_the_message_its_id_and_the_operations() -> None:
    history = Scene().play(CAME_BACK).history
    (finding,) = judge(history).findings
    assert (finding.body, finding.id, finding.where) == ("1", "0" * 16, "orders/billing")
    operations = history.operations()
    assert [operations[number].kind for number in finding.numbers] == ["fin", "processed", "delivered"]


def test_what_only_some_tests_demand() -> None:
    scene = Scene().play(FORGOTTEN)
    assert scene.found("twice") == ["twice"]
    assert judge(scene.history, journal_delay_s=0.2).of("repeated")
    assert set(EXTRA_CHECKS) == {"twice"}


def test_without_fins_that_were_answered_nothing_is_certain() -> None:
    verdict = judge(Scene().play("publish 1; fin 1; finish 1 2").history).require_sound()
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

Operations = list[Operation]


def a_life(chance: Random, count: int) -> Operations:
    """Publish, consume in order, requeue some, restart now and then; drain at the end."""
    scene = Scene()
    for number in range(count):
        bodies = f"{number}-a", f"{number}-b"
        scene.publish(*bodies)
        for body in bodies:
            attempts = map(str, itertools.count(1))
            while chance.random() < 0.2:
                scene.requeue(body, next(attempts))
            scene.finish(body, next(attempts))
        if chance.random() < 0.2:
            scene.stop()
    scene.drained()
    return scene.history.operations()


def deliveries_of(operations: Operations, *, only_first: bool = False) -> list[int]:
    """Return where deliveries of messages are that came once, or all of them."""
    places = [place for place, operation in enumerate(operations) if operation.kind == Kind.DELIVERED]
    if not only_first:
        return places
    bodies = [operations[place].bodies for place in places]
    return [place for place in places if bodies.count(operations[place].bodies) == 1]


def repeat(operations: Operations, place: int, **changes: Any) -> None:
    """Something like the operation at this place follows it."""
    operations.insert(place + 1, replace(operations[place], number=10**6, **changes))


def drop(operations: Operations, chance: Random) -> None:
    """A message does not come."""
    place = chance.choice(deliveries_of(operations, only_first=True))
    gone = {operations[place].number, operations[place + 1].number}
    operations[:] = [operation for operation in operations if operation.number not in gone]


def forget(operations: Operations, chance: Random) -> None:
    """A FIN is refused, and the message does not come again."""
    place = chance.choice([place for place, operation in enumerate(operations) if operation.kind == Kind.FIN])
    repeat(operations, place, kind=Kind.DENIED, of=operations[place].number)


def duplicate(operations: Operations, chance: Random) -> None:
    """A delivery comes twice."""
    repeat(operations, chance.choice(deliveries_of(operations)))


def copy(operations: Operations, chance: Random) -> None:
    """A message comes once more, under another id."""
    repeat(operations, chance.choice(deliveries_of(operations)), id="f" * 16, attempts=1)


def swap(operations: Operations, chance: Random) -> None:
    """Two messages come in each other's place, ids and all."""
    places = deliveries_of(operations, only_first=True)
    index = chance.randrange(len(places) - 1)
    one, other = places[index : index + 2]
    first, second = operations[one], operations[other]
    operations[one] = replace(second, number=first.number, at_ns=first.at_ns)
    operations[other] = replace(first, number=second.number, at_ns=second.at_ns)


def exchange_bodies(operations: Operations, chance: Random) -> None:
    """A message comes with the body of the one that came after it."""
    places = deliveries_of(operations)
    index = chance.randrange(len(places) - 1)
    one, other = places[index : index + 2]
    if operations[one].bodies == operations[other].bodies:
        alter(operations, chance)
    else:
        operations[one] = replace(operations[one], bodies=operations[other].bodies)


def alter(operations: Operations, chance: Random) -> None:
    """A message comes with another body."""
    place = chance.choice(deliveries_of(operations))
    operations[place] = replace(operations[place], bodies=(operations[place].bodies[0] + "?",))


def resurrect(operations: Operations, chance: Random) -> None:
    """A message comes again at the end, although its FIN was processed."""
    place = chance.choice(deliveries_of(operations))
    last = [operation for operation in operations if operation.bodies == operations[place].bodies][-1]
    end = operations[-1]
    again = replace(last, number=end.number + 1, attempts=last.attempts + 1)
    fin = Operation(Kind.FIN, end.number + 2, last.at_ns, of=again.number)
    operations += [again, fin, replace(end, number=end.number + 3)]


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
def test_each_mutation_of_a_correct_history_is_found(
    seed: int, mutate: Callable[[Operations, Random], None]
) -> None:
    chance = Random(seed)
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
    path = tmp_path / "history.jsonl"
    in_memory, in_a_file = (
        Scene(place).play(ONE_OF_EVERYTHING).history.operations() for place in (None, path)
    )
    assert in_memory == in_a_file
    with pytest.raises(FileExistsError):
        History(path)


def test_threads_that_write_at_once_leave_whole_lines_in_order(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")

    def write(name: str) -> None:
        for number in range(200):
            history.ok(history.sending(TOPIC, [f"{name}-{number}".encode()], name))

    run_in_threads([partial(write, f"t{number}") for number in range(4)])
    operations = history.operations()
    assert [operation.number for operation in operations] == list(range(1600))
    assert [operation.at_ns for operation in operations] == sorted(
        operation.at_ns for operation in operations
    )
    assert (history.sent, history.acknowledged) == (800, 800)


def test_names_tell_bodies_apart() -> None:
    bodies = [
        b"",
        b"1",
        b"\n",
        b"\\n",
        "é".encode(),
        b"\xff",
        b"x" * 40,
        b"x" * 41,
        b"x" * 40 + b"y",
        b"x" * 24 + b"~41~",
    ]
    assert len(set(map(name_of, bodies))) == len(bodies)
    assert name_of(b"short text") == "short text"
    assert name_of(b"x" * 41).startswith("x" * 24 + "~41~")


@pytest.mark.parametrize(("story", "status"), [(ONE_OF_EVERYTHING, 0), (NEVER_CAME, 1)])
def test_the_command_checks_a_file(tmp_path: Path, story: str, status: int) -> None:
    path = tmp_path / "history.jsonl"
    Scene(path).play(story)
    done = CliRunner().invoke(main, [str(path)])
    assert done.exit_code == status
    assert ("lost: orders/billing: 1 was acknowledged and never came" in done.output) == bool(status)


def test_the_command_refuses_a_file_that_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("text\n")
    assert CliRunner().invoke(main, [str(path)]).exit_code == 2


def test_a_verdict_shows_the_operations_of_what_it_found() -> None:
    """The history may be gone when somebody looks."""
    verdict = judge(Scene().play("publish emptied; publish other; cut; kill; deliver emptied").history)
    shown = [line.strip() for line in verdict.lines() if line.startswith("    ")]
    kinds = [ast.literal_eval(line)["kind"] for line in shown]
    assert kinds == ["sending", "ok", "cut", "cut ended", "killed", "started", "delivered"]
    assert "other" not in "".join(shown)
