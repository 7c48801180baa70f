"""The protocol of a store at hostile schedules: lost answers, late writes, suspended writers, crashes, several machines.

Nothing that was acknowledged is ever missing; an epoch has one writer; a reader finds a whole state at any moment. Each
rule of the protocol is broken on purpose too, and then the same model finds it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import contextmanager, suppress
from inspect import signature
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nsqd_py.objects.calls import Changed, Exists, Missing, StoreError
from nsqd_py.store import image as image_module
from nsqd_py.store import ownership, rounds
from nsqd_py.store.image import StoreImage, StoreReader
from nsqd_py.store.layout import BadObject, Head, StoredFile, parse_round_name
from nsqd_py.store.ownership import KEEP_NS, Owner
from tests.property.simulated_store import (
    MESSAGE_BYTES,
    MESSAGES,
    Content,
    DirectObjects,
    Disk,
    InOneThread,
    Outcome,
    Process,
)
from tests.support.examples import examples

COMMANDS = ("round", "round", "long round", "base", "long base", "head", "collect", "file", "drop")
OUTCOMES = st.sampled_from([Outcome.DONE] * 8 + list(Outcome))
MACHINES = 2
MOST_STEPS = 40
SEEDS = 200  # all of them in `make torture`
MOST_SEEDS = 3000
# Schedules that find what is broken where the first hundreds do not: 480 schedules take 13 CPU seconds.
QUICK_SEEDS = (480, 101)


class StoreMachine(RuleBasedStateMachine):
    """Two machines with a store. The first one restarts on its disk; the second one is an empty one that takes over."""

    def __init__(self) -> None:
        super().__init__()
        self.content = Content()
        self.disks = [Disk() for _ in range(MACHINES)]
        self.processes: list[Process] = []
        self.acknowledged: set[int] = set()
        self.published: set[int] = set()
        self._patch = mock.patch.object(image_module, "ThreadPoolExecutor", InOneThread)
        self._patch.start()

    def teardown(self) -> None:
        for process in self.processes:
            if not process.is_over:
                process.crash()
        self._patch.stop()

    def _recovered(self, found: set[int]) -> None:
        assert found <= self.published
        assert self.acknowledged <= found, f"lost by a claim: {sorted(self.acknowledged - found)}"

    def _stored(self, messages: list[int]) -> None:
        self.acknowledged.update(messages)

    @property
    def running(self) -> list[Process]:
        return [process for process in self.processes if not process.is_over]

    def _one(self, index: int) -> Process:
        return self.running[index % len(self.running)]

    # ---- the schedule

    @rule(machine=st.integers(0, MACHINES - 1), is_new_disk=st.booleans())
    def start(self, machine: int, is_new_disk: bool) -> None:
        """Start an nsqd: a restart on the disk that is there, or a restore on a new one. Another one may still run."""
        if len(self.running) >= 4:
            return
        if is_new_disk:
            self.disks[machine] = Disk()
        process = Process(
            self.content,
            self.disks[machine],
            may_take_over=is_new_disk,
            on_recovered=self._recovered,
            on_stored=self._stored,
        )
        self.processes.append(process)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), outcomes=st.lists(OUTCOMES, min_size=1, max_size=5), lag=st.integers(0, 2))
    def step(self, index: int, outcomes: list[Outcome], lag: int) -> None:
        process = self._one(index)
        for outcome in outcomes:
            if not process.is_over:
                process.advance(outcome, lag)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), steps=st.integers(1, MOST_STEPS))
    def run_on(self, index: int, steps: int) -> None:
        process = self._one(index)
        for _ in range(steps):
            if not process.is_over:
                process.advance(Outcome.DONE)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), commands=st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=4))
    def work(self, index: int, commands: list[str]) -> None:
        """Publish to an owner, and let it store that."""
        process = self._one(index)
        if process.owner is None:
            return
        message = len(self.published)
        self.published.add(message)
        process.publish(message)
        for command in commands:
            process.do(command)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9), happens_later=st.booleans())
    def crash(self, index: int, happens_later: bool) -> None:
        self._one(index).crash(happens_later=happens_later)

    @precondition(lambda self: self.content.late)
    @rule(index=st.integers(0, 9))
    def land(self, index: int) -> None:
        """Let a call happen whose caller has given up."""
        late = self.content.late
        operation = late.pop(index % len(late))
        with suppress(Exists, Missing, Changed):
            operation()

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 9))
    def an_hour_passes(self, index: int) -> None:
        """Let the time pass for one process: the clocks of the others stand still, as those of a suspended machine."""
        self._one(index).clock_ns += KEEP_NS + 1

    @rule(machine=st.integers(0, MACHINES - 1), moves_head=st.booleans())
    def a_successor_cleans_up(self, machine: int, moves_head: bool) -> None:
        """Restore on a new disk, and delete all that an hour makes superfluous, while the others are suspended."""
        self.start(machine, is_new_disk=True)
        process = self.processes[-1]
        for _ in range(2):
            self._do(process, "base", *["head"] * moves_head, "collect")
            process.clock_ns += KEEP_NS + 1

    @rule(machine=st.integers(0, MACHINES - 1))
    def a_deletion_is_late(self, machine: int) -> None:
        """Suspend a process when it deletes a log file, until another one has stored the same file."""
        self.start(machine, is_new_disk=True)
        process = self.processes[-1]
        self._do(process, "file", "drop")
        process.clock_ns += KEEP_NS + 1
        process.do("collect")
        for _ in range(MOST_STEPS):
            if not process.deletes:
                process.advance(Outcome.DONE)
        self.start(machine, is_new_disk=True)
        self._do(self.processes[-1], "file")
        if not process.is_over:
            process.advance(Outcome.DONE)

    def _do(self, process: Process, *commands: str) -> None:
        if process.is_over:
            return
        for command in commands:
            process.do(command)
        for _ in range(2 * MOST_STEPS):
            process.advance(Outcome.DONE)

    # ---- what holds at any moment

    @invariant()
    def a_reader_finds_everything(self) -> None:
        reader = StoreReader(DirectObjects(self.content))
        try:
            reader.refresh()
        except Missing:
            assert not self.acknowledged
            return
        content = bytes(reader.image.small.get(MESSAGES, b""))
        found = {
            int.from_bytes(content[start : start + MESSAGE_BYTES])
            for start in range(0, len(content), MESSAGE_BYTES)
        }
        assert self.acknowledged <= found, f"lost: {sorted(self.acknowledged - found)}"
        for files in reader.image.files.values():
            for file in files:
                assert file.name in self.content.objects, f"{file.name} is gone"

    @invariant()
    def an_epoch_has_one_writer(self) -> None:
        writers: dict[int, str] = {}
        for name, contents in self.content.created.items():
            number = parse_round_name(name)
            if number is None:
                continue
            for data in contents:
                made = rounds.decode(number, data)
                assert writers.setdefault(made.epoch, made.writer) == made.writer


def test_nothing_that_was_acknowledged_is_lost() -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=examples(100),
            stateful_step_count=60,
            deadline=None,
            database=None,
            phases=(Phase.generate,),  # each failure prints its schedule; to shorten it would take minutes
            suppress_health_check=list(HealthCheck),
        ),
    )


# ---- the same machine at schedules of a random generator, which tries ten times as many in the same time


def run(seed: int, steps: int = 80) -> None:
    """Run one schedule, and check what must hold after each of its steps."""
    choose = random.Random(seed)
    machine = StoreMachine()
    rules = {
        machine.step: 30,
        machine.run_on: 20,
        machine.work: 25,
        machine.crash: 4,
        machine.land: 8,
        machine.an_hour_passes: 4,
        machine.start: 8,
        machine.a_successor_cleans_up: 1,
        machine.a_deletion_is_late: 1,
    }
    outcomes = [Outcome.DONE] * 8 + list(Outcome)
    arguments: dict[str, Callable[[], Any]] = {
        "machine": lambda: choose.randrange(MACHINES),
        "is_new_disk": lambda: choose.random() < 0.5,
        "index": lambda: choose.randrange(10),
        "outcomes": lambda: choose.choices(outcomes, k=choose.randint(1, 5)),
        "lag": lambda: choose.randrange(3),
        "steps": lambda: choose.randint(1, MOST_STEPS),
        "commands": lambda: choose.choices(COMMANDS, k=choose.randint(1, 4)),
        "moves_head": lambda: choose.random() < 0.7,
        "happens_later": lambda: choose.random() < 0.5,
    }
    try:
        for _ in range(steps):
            (act,) = choose.choices(list(rules), list(rules.values()))
            if not machine.running and act not in (machine.start, machine.a_successor_cleans_up):
                act = machine.start
            if act == machine.land and not machine.content.late:
                continue
            act(**{name: arguments[name]() for name in signature(act).parameters})
            machine.a_reader_finds_everything()
            machine.an_epoch_has_one_writer()
    finally:
        machine.teardown()


def test_nothing_is_lost_at_random_schedules() -> None:
    for seed in range(examples(SEEDS)):
        run(seed)


# ---- somebody puts earlier versions of the head back

COMMANDS_WITH_LOOK = (*COMMANDS, "look", "look")


def run_with_rolled_back_heads(seed: int, steps: int = 80) -> None:
    """Run one schedule, in which no hour passes; in the end, an empty machine must get everything."""
    choose = random.Random(seed)
    machine = StoreMachine()
    content = machine.content

    def start() -> None:
        machine.start(choose.randrange(MACHINES), choose.random() < 0.5)

    def step() -> None:
        outcomes = choose.choices([Outcome.DONE] * 8 + list(Outcome), k=choose.randint(1, 5))
        machine.step(choose.randrange(10), outcomes, choose.randrange(3))

    def run_on() -> None:
        machine.run_on(choose.randrange(10), choose.randint(1, MOST_STEPS))

    def work() -> None:
        machine.work(choose.randrange(10), choose.choices(COMMANDS_WITH_LOOK, k=choose.randint(1, 4)))

    def crash() -> None:
        machine.crash(choose.randrange(10), choose.random() < 0.5)

    def land() -> None:
        if content.late:
            machine.land(choose.randrange(10))

    def roll_back() -> None:
        if content.heads:
            content.roll_back_head(choose.randrange(len(content.heads)))

    acts = {step: 30, run_on: 20, work: 25, crash: 4, land: 8, start: 8, roll_back: 5}
    try:
        for _ in range(steps):
            (act,) = choose.choices(list(acts), list(acts.values()))
            if not machine.running and act is not roll_back:
                act = start
            act()
            machine.an_epoch_has_one_writer()
        roll_back()
        _restore(machine)
    finally:
        machine.teardown()


def _restore(machine: StoreMachine) -> None:
    """Restore on a new disk, while the others stand still; `_recovered` checks what it finds."""
    for process in machine.running:
        process.crash()
    machine.start(0, is_new_disk=True)
    process = machine.processes[-1]
    for _ in range(1000):
        process.advance(Outcome.DONE)
    assert process.owner is not None
    assert not process.is_over


def test_nothing_is_lost_if_the_head_is_rolled_back() -> None:
    for seed in range(examples(SEEDS)):
        run_with_rolled_back_heads(seed)


def test_the_model_finds_a_claim_of_an_epoch_that_has_rounds() -> None:
    with (
        mock.patch.object(ownership._Takeover, "_is_known", lambda self, epoch: epoch <= self._head.epoch),
        pytest.raises((AssertionError, BadObject)),
    ):
        for seed in range(MOST_SEEDS):
            run_with_rolled_back_heads(seed)


# ---- each rule of the protocol, broken on purpose


def _counts_what_another_has_created(objects: Any, name: str, data: bytes) -> bool:
    """An object that exists is taken for the own one."""
    with suppress(Exists):
        objects.create(name, data)
    return True


def _counts_what_has_no_answer(objects: Any, name: str, data: bytes) -> bool:
    """A put without an answer is taken for done."""
    with suppress(StoreError):
        return _is_created(objects, name, data)
    return True


def _takes_over_without_an_object(self: Any) -> bool:
    return True


def _skips_late_rounds(self: Any) -> bool:
    """A round that the writer before has put during the claim is left out."""
    is_mine = _create(self)
    if not is_mine:
        self.image.skip()
    return is_mine


def _head_names_a_base_that_has_begun(self: Owner) -> None:
    added = self._unsettled
    _settle(self)
    if added is not None and added.is_base:
        self._complete_base = added.number


def _applies_a_base_that_has_begun(self: StoreImage, obj: rounds.RoundObject) -> None:
    _apply(self, obj)
    if self._new is not None:
        self._state = self._new


def _swaps_any_version(self: Content, name: str, data: bytes, version: Any) -> Any:
    return self._put(name, data)


def _replaces_what_exists(self: Content, name: str, data: bytes) -> Any:
    self.created.setdefault(name, []).append(data)
    return self._put(name, data)


def _collects_below_a_base_that_the_head_does_not_name(self: Owner) -> int:
    self._limit = self._complete_base
    return _collect(self)


def _reads_an_older_epoch_on(self: Any) -> None:
    """A claim goes on although a later one has been there."""
    for number, data in image_module.read_rounds(self._objects, self.image.next_number):
        image_module.take_round(self.image, number, data, None)


def _name_without_epoch(self: StoredFile) -> str:
    return f"files/{self.topic}/{self.first_seq}-{self.salt}.log"


def _goes_on_from_what_it_has_read_first(self: Process, head: Head | None) -> StoreImage | None:
    """A restore keeps the state that it has read with a head that was moved since."""
    self.known = getattr(self, "known", None) or _check(self, head)  # type: ignore[attr-defined]
    return self.known  # type: ignore[attr-defined, no-any-return]


_check = Process.check
_is_created = ownership._is_created
_create = ownership._Takeover._create
_settle = Owner.settle
_apply = StoreImage.apply
_collect = Owner.collect

BROKEN: dict[str, tuple[Any, str, Any]] = {
    "what another has created counts": (ownership, "_is_created", _counts_what_another_has_created),
    "what has no answer counts": (ownership, "_is_created", _counts_what_has_no_answer),
    "a claim without a takeover": (ownership._Takeover, "_create", _takes_over_without_an_object),
    "late rounds are left out": (ownership._Takeover, "_create", _skips_late_rounds),
    "a stale claim goes on": (ownership._Takeover, "_read_to_gap", _reads_an_older_epoch_on),
    "a claim does not read the head again": (Owner, "check", lambda self: None),
    "a restore goes on from an earlier state": (Process, "check", _goes_on_from_what_it_has_read_first),
    "takeovers are deleted": (ownership, "TAKEOVER_BYTES", 0),
    "the head names a base that has begun": (Owner, "settle", _head_names_a_base_that_has_begun),
    "a base counts when it begins": (StoreImage, "apply", _applies_a_base_that_has_begun),
    "rounds are deleted before the head moves": (
        Owner,
        "collect",
        _collects_below_a_base_that_the_head_does_not_name,
    ),
    "a store that swaps any version": (Content, "swap", _swaps_any_version),
    "a store that replaces what exists": (Content, "create", _replaces_what_exists),
    "names of files without the epoch": (StoredFile, "name", property(_name_without_epoch)),
}


@contextmanager
def broken(name: str) -> Any:
    target, attribute, replacement = BROKEN[name]
    with (
        mock.patch.object(target, attribute, replacement),
        # The model's stores have no conditional writes at all, and a claim would refuse them.
        mock.patch.object(ownership, "_try_conditions", lambda objects, writer: None),
    ):
        yield


@pytest.mark.parametrize("name", BROKEN)
def test_the_model_finds_what_is_broken(name: str) -> None:
    with broken(name), pytest.raises((AssertionError, BadObject)):
        for seed in (*QUICK_SEEDS, *range(MOST_SEEDS)):
            run(seed)
