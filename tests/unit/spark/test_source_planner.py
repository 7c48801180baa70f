"""The planner against a model of nsqds and their archive: what a stream reads, whatever happens in between.

The archive is real files with a real manifest. Logs are in memory.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

pytest.importorskip("pyspark")

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source import archived_files
from nsq_spark.source.batch_reader import ArchivePartition, read_partition
from nsq_spark.source.live_options import LogKey, Position, TopicOffset, live_options
from nsq_spark.source.nsqds import LiveTopics, LostMessages, NoTopic, Retained
from nsq_spark.source.planner import Planner, TopicPartition
from nsq_tools.to_file.log_parts import LogPart
from tests.support.archives import Message, finished_file, framed

TOPIC = "orders"
NSQDS = ("a", "b")
VISITORS = ("v", "w")
NUMBERS = st.integers(1, 9)
SHARES = st.lists(st.booleans(), min_size=2, max_size=20)


@dataclass
class Log:
    """The log of the topic at an nsqd. `archived` and `dropped` are numbers of messages from the beginning on."""

    epoch: int
    ids: list[int] = field(default_factory=list)
    archived: int = 0
    finished: int = 0
    dropped: int = 0
    ended: tuple[tuple[int, int], ...] = ()
    is_deleted: bool = False

    def retained(self, seq: int, used_id: int) -> Retained:
        seq = max(seq, self.dropped)
        is_empty = seq >= len(self.ids)
        end = Position(self.ids[-1] if self.ids else 0, len(self.ids), self.epoch)
        first = Position(
            end.message_id if is_empty else self.ids[seq] - 1, min(seq, len(self.ids)), self.epoch
        )
        return Retained(b"" if is_empty else b" " * 100, first, end, len(self.ids), self.dropped, self.ended)


class World:
    """Nsqds, an archive, and messages whose ids rise; ids differ by more than 1 between some of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs = {nsqd: Log(number) for number, nsqd in enumerate(NSQDS, 1)}
        self.epoch = len(NSQDS)
        self.last_id = 0
        self.down: set[str] = set()
        self.gone: set[str] = set()
        self.notes_ends = True  # of logs, in the manifest
        self.published: list[int] = []
        self.files: dict[Path, list[Message]] = {}

    def publish(self, nsqd: str, count: int) -> None:
        if nsqd in self.gone:
            return
        if self.logs[nsqd].is_deleted:
            self.create_again(nsqd)
        for number in range(count):
            self.last_id += 1 + (number == 0) * 10
            self.logs[nsqd].ids.append(self.last_id)
            self.published.append(self.last_id)

    def delete(self, nsqd: str) -> None:
        """Nothing else is archived of it than what files have, finished ones or not."""
        log = self.logs[nsqd]
        log.dropped = log.archived = len(log.ids)
        log.is_deleted = True

    def create_again(self, nsqd: str) -> None:
        log = self.logs[nsqd]
        self.epoch += 1
        self.logs[nsqd] = Log(self.epoch, ended=(*log.ended, (log.epoch, len(log.ids))))

    def visit(self, nsqd: str, count: int) -> None:
        """An nsqd is there for a time. All that its topic had is archived when it is deleted, and then the nsqd is gone."""
        self.epoch += 1
        self.logs[nsqd] = Log(self.epoch)
        self.publish(nsqd, count)
        log = self.logs.pop(nsqd)
        self.write({nsqd: log.ids}, is_described=True, deleted=log)

    def write(self, runs: dict[str, list[int]], *, is_described: bool, deleted: Log | None = None) -> None:
        """Write messages of nsqds to a file, or of a log that may be deleted by now."""
        messages, parts = [], []
        for nsqd, ids in runs.items():
            if not ids:
                continue
            log = deleted or self.logs[nsqd]
            part = LogPart(f"{nsqd}:4150")
            part.add([b"%016x" % one for one in ids])
            part.epoch, part.first_seq = log.epoch, log.ids.index(min(ids))
            if self.notes_ends and nsqd not in self.gone:
                part.end_id, part.end_seq = f"{max(log.ids):016x}", len(log.ids)
            parts.append(part)
            messages.append([Message(b"%d" % one, id=f"{one:016x}", nsqd=part.nsqd) for one in ids])
        if messages:
            self._finish(messages, parts if is_described else [])

    def _finish(self, messages: list[list[Message]], parts: list[LogPart]) -> None:
        name, data = f"{len(list(self.directory.iterdir()))}.framed", framed(messages)
        if parts:
            facts = {"messages": sum(part.count for part in parts), "nsqds": [asdict(part) for part in parts]}
            path = finished_file(self.directory, name, data, format="framed", crc32c="00000000", **facts)
        else:
            path = self.directory / name
            path.write_bytes(data)
        self.files[path] = [message for run in messages for message in run]

    def has_only_unfinished(self) -> bool:
        """True if there is a message that is neither kept nor in a finished file."""
        finished = {int(str(one.id), 16) for messages in self.files.values() for one in messages}
        kept = {one for log in self.logs.values() for one in log.ids[log.dropped :]}
        return bool(set(self.published) - finished - kept)

    def compact(self, paths: Iterable[Path]) -> None:
        """Write one file in place of some, as OPTIMIZE does. The manifest keeps its lines."""
        runs: dict[str, list[Message]] = {}
        for path in paths:
            for message in self.files.pop(path):
                runs.setdefault(str(message.nsqd), []).append(message)
            path.unlink()
            path.with_suffix(".gone").touch()  # its name is not used again
        if runs:
            self._finish(list(runs.values()), [])


class ModelTopics(LiveTopics):
    """The questions to nsqds, answered by the model.

    deferred  messages that an nsqd keeps before its earliest one
    """

    deferred = 0

    def __init__(self, options: Any, world: World) -> None:
        super().__init__(options)
        self._world = world

    def retained(self, known: Iterable[LogKey] = (), *, of_all: bool = False) -> dict[LogKey, Retained]:
        world = self._world
        self.silent = {LogKey(TOPIC, f"{nsqd}:4151") for nsqd in world.down}
        there = [nsqd for nsqd in NSQDS if nsqd not in world.down and not world.logs[nsqd].is_deleted]
        logs = [LogKey(TOPIC, f"{nsqd}:4151") for nsqd in there]
        return {log: self.read(log, seq=0) for log in logs}

    def read(self, log: LogKey, **place: int) -> Retained:
        nsqd = log.nsqd.partition(":")[0]
        one = self._world.logs.get(nsqd)
        if one is None or nsqd in self._world.gone:
            raise ArchiveError(f"{nsqd} is gone")
        if one.is_deleted:
            raise NoTopic("it was deleted", (*one.ended, (one.epoch, len(one.ids)))[not one.ids :])
        seq = place.get("seq", 0)
        if "id" in place:
            seq = sum(message_id <= place["id"] for message_id in one.ids)
        return one.retained(seq, self._world.last_id)

    def waiting(self, log: LogKey, earliest_seq: int) -> int:
        return self.deferred

    def names_of(self, nsqd: str) -> tuple[str, str]:
        name = f"{nsqd.partition(':')[0]}:4150"
        return name, name

    def by_tcp_address(self) -> Any:
        return {f"{nsqd}:4150": f"{nsqd}:4151" for nsqd in NSQDS if nsqd not in self._world.gone}, []


class Streams(RuleBasedStateMachine):
    """A stream that is started again at any time, and reads a batch twice. Nothing is lost here.

    rest_in  the size of the batches at the end
    """

    rest_in: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        (directory / "archive").mkdir()
        self.world = World(directory / "archive")
        self.remembered = directory / "checkpoint"
        self.found: Counter[int] = Counter()
        self.offset: TopicOffset | None = None
        self.now_s = 0.0

    def teardown(self) -> None:
        self.world.down.clear()
        try:
            if self.offset is not None:
                while self.step(self.rest_in):
                    pass
                self.check()
        finally:
            self.stack.close()

    def check(self) -> None:
        assert [one for one, count in self.found.items() if count > 1] == []
        assert set(self.found) == set(self.world.published)

    @initialize(has_location=st.booleans(), parts=st.integers(1, 3))
    def begin(self, has_location: bool, parts: int) -> None:
        options = {
            "nsqd": "a:4151,b:4151",
            "topic": TOPIC,
            "path": str(self.world.directory),
            "giveUpAfter": "0s",
            "goneNsqds": "*",
        }
        location = {"checkpointLocation": str(self.remembered)} if has_location else {}
        self.options = live_options({**options, **location, "minPartitions": str(parts)}, 0)
        self.restart()

    @rule()
    def restart(self) -> None:
        self.plan = Planner(self.options, ("id",), waits=True)
        self.plan.logs.topics = ModelTopics(self.options, self.world)
        assert self.plan.history is not None
        self.plan.history.clock = lambda: self.now_s

    @rule(nsqd=st.sampled_from(VISITORS), count=NUMBERS)
    def visit(self, nsqd: str, count: int) -> None:
        """Of an nsqd that no process of the query ever saw, only the archive has something, perhaps of several logs."""
        self.world.visit(nsqd, count)

    @rule(nsqd=st.sampled_from(NSQDS), count=NUMBERS)
    def publish(self, nsqd: str, count: int) -> None:
        self.world.publish(nsqd, count)

    @rule(counts=st.tuples(NUMBERS, NUMBERS), is_described=st.booleans(), again=st.integers(0, 4))
    def archive(self, counts: tuple[int, int], is_described: bool, again: int) -> None:
        self.finish_file(counts, again, is_described=is_described)

    def finish_file(self, counts: tuple[int, int], again: int, *, is_described: bool) -> None:
        """Finish a file with the next messages of both, and with some that were there before."""
        runs = {}
        for nsqd, count in zip(NSQDS, counts, strict=True):
            log = self.world.logs[nsqd]
            end = min(len(log.ids), log.archived + count)
            repeated = log.ids[max(0, log.archived - again) : log.archived] if again > 2 else []
            runs[nsqd] = repeated[::-1] + log.ids[log.archived : end] if end > log.archived else []
            log.archived = max(end, log.archived)
        self.world.write(runs, is_described=is_described)

    @rule(nsqd=st.sampled_from(NSQDS), count=NUMBERS)
    def drop(self, nsqd: str, count: int) -> None:
        log = self.world.logs[nsqd]
        log.dropped = min(log.archived, log.dropped + count)

    @rule(nsqd=st.sampled_from(NSQDS), count=NUMBERS)
    def create_again(self, nsqd: str, count: int) -> None:
        """What the log had is archived."""
        log = self.world.logs[nsqd]
        self.world.write({nsqd: log.ids[log.archived :]}, is_described=True)
        self.world.create_again(nsqd)
        self.world.publish(nsqd, count - 1)

    @precondition(lambda self: self.world.files)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        self.restart()  # what was listed is not there any more
        self.world.compact(
            data.draw(st.lists(st.sampled_from(sorted(self.world.files)), unique=True, min_size=1))
        )

    @precondition(lambda self: self.offset is not None)
    @rule(nsqd=st.sampled_from(NSQDS))
    def stop_or_start(self, nsqd: str) -> None:
        self.world.down ^= {nsqd}
        if self.world.down == set(NSQDS):
            self.world.down = {nsqd}

    @rule(most=st.one_of(st.none(), st.integers(1, 12)), crashes=st.booleans())
    def batch(self, most: int | None, crashes: bool) -> None:
        self.step(most, crashes=crashes)

    def step(self, most: int | None, *, crashes: bool = False) -> bool:
        """Read the next batch; False if there is none."""
        self.now_s += 60  # so that it looks at the manifest again
        if self.offset is None:
            self.world.down.clear()
            self.offset = self.plan.beginning(self.plan.retained(of_all=True))
        before = self.offset
        planned = self.plan.batch(before, self.plan.retained(of_all=False), None, most).offset
        if planned.ends == before.ends and not planned.begins:
            return False
        after = TopicOffset.of_json(json.loads(json.dumps(planned.to_json())))
        once = self.rows(before, after)
        if crashes:
            self.restart()
            assert sorted(self.rows(before, after)) == sorted(once)
        assert most is None or len(once) <= most
        self.found.update(once)
        self.offset = after
        return bool(once) or after.ends != before.ends

    def rows(self, before: TopicOffset, after: TopicOffset) -> list[int]:
        found: list[int] = []
        for part in self.plan.partitions(before, after, self.plan.retained(of_all=False)):
            if isinstance(part, TopicPartition):
                found += self.of_log(part)
            elif isinstance(part, ArchivePartition):
                found += [
                    int(one, 16) for batch in read_partition(part) for one in batch.column(0).to_pylist()
                ]
        return found

    def of_log(self, part: TopicPartition) -> list[int]:
        """As `read_range` does; the sections that were dropped or are of another log come from the archive."""
        log, low, high = self.world.logs[part.log.nsqd.partition(":")[0]], part.low, part.high
        assert high.count is not None
        found: list[int] = []
        if high.epoch != log.epoch:
            return self.of_archive(part.log, low, high)
        kept = self.plan.topics.read(part.log, id=low.last_id)
        if low.count is None and kept.first.seq > kept.earliest_seq:
            low = kept.first
        if log.dropped > low.seq:
            reached = kept.first if kept.first.is_before(high) else high
            found += self.of_archive(part.log, low, reached)
            low = reached
        return found + log.ids[low.seq : high.seq]

    def of_archive(self, log: LogKey, low: Position, high: Position) -> list[int]:
        parts = self.plan.archived(log, low, high)
        return [
            int(one, 16)
            for part in parts
            if isinstance(part, ArchivePartition)
            for batch in read_partition(part)
            for one in batch.column(0).to_pylist()
        ]


class LossyStreams(Streams):
    """Some messages are neither archived nor kept. A query fails, and with failOnDataLoss=false it loses only these.

    never_there  those which were lost before the query began: an archive may begin later than its topic
    """

    rest_in = 5

    def lost(self) -> set[int]:
        archived = {
            int(str(message.id), 16) for messages in self.world.files.values() for message in messages
        }
        kept = {one for log in self.world.logs.values() for one in log.ids[log.dropped :]}
        return set(self.world.published) - archived - kept

    def check(self) -> None:
        assert [one for one, count in self.found.items() if count > 1] == []
        missing = set(self.world.published) - set(self.found)
        assert missing <= self.lost()
        assert missing <= self.never_there or not self.options.fails_on_loss, "it was said"

    @rule(nsqd=st.sampled_from(NSQDS), count=NUMBERS)
    def create_again(self, nsqd: str, count: int) -> None:
        """What is not archived is lost, and the first message of the new log shows that."""
        self.world.create_again(nsqd)
        self.world.publish(nsqd, count)

    @rule(nsqd=st.sampled_from(NSQDS), count=NUMBERS)
    def empty_channel(self, nsqd: str, count: int) -> None:
        log = self.world.logs[nsqd]
        log.archived = min(len(log.ids), log.archived + count)

    @rule(counts=st.tuples(NUMBERS, NUMBERS), again=st.integers(0, 4))
    def archive(self, counts: tuple[int, int], again: int) -> None:
        self.finish_file(counts, again, is_described=True)

    @rule(nsqd=st.sampled_from(NSQDS), shares=SHARES)
    def lose_the_file_of_one_of_two(self, nsqd: str, shares: list[bool]) -> None:
        log = self.world.logs[nsqd]
        ids = log.ids[log.archived :][: len(shares)]
        log.archived += len(ids)
        mine = [one for one, is_mine in zip(ids, shares, strict=False) if is_mine]
        self.world.write({nsqd: mine}, is_described=True)

    def step(self, most: int | None, *, crashes: bool = False) -> bool:
        if self.offset is None:
            self.never_there = self.lost()
        try:
            return super().step(most, crashes=crashes)
        except LostMessages:
            assert self.options.fails_on_loss and self.lost()
            self.options = replace(self.options, fails_on_loss=False)
            self.restart()
            return super().step(most, crashes=crashes)


class SharedStreams(Streams):
    """Several nsq-to-files share a channel, and finish their files at different times: ids of files overlap. A query is refused
    while messages that it needs are in no finished file, and has each message once when all files are finished.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unfinished: list[tuple[str, Log, list[int]]] = []
        self.shares: list[bool] = []

    def teardown(self) -> None:
        self.finish_all()
        super().teardown()

    @initialize(notes_ends=st.booleans())
    def begin_to_archive(self, notes_ends: bool) -> None:
        """An earlier nsq-to-file does not note how far logs went; nsqds remember that of deleted topics."""
        self.world.notes_ends = notes_ends

    @rule(nsqd=st.sampled_from(NSQDS), shares=SHARES, most=st.integers(1, 12))
    def share_between_plan_and_reading(self, nsqd: str, shares: list[bool], most: int) -> None:
        self.publish(nsqd, len(shares))
        self.shares = shares
        self.step(most)

    @rule(nsqd=st.sampled_from(NSQDS), shares=SHARES)
    def share(self, nsqd: str, shares: list[bool]) -> None:
        """The next messages are finished in the channel, those of one nsq-to-file not in the archive."""
        log = self.world.logs[nsqd]
        ids = log.ids[log.archived :][: len(shares)]
        log.archived += len(ids)
        mine = [one for one, is_mine in zip(ids, shares, strict=False) if is_mine]
        self.unfinished.append((nsqd, log, [one for one in ids if one not in mine]))
        self.world.write({nsqd: mine}, is_described=True)

    @precondition(lambda self: self.unfinished)
    @rule()
    def finish_one(self) -> None:
        nsqd, log, ids = self.unfinished.pop()
        self.world.write({nsqd: ids}, is_described=True, deleted=log)

    def finish_all(self) -> None:
        while self.unfinished:
            self.finish_one()

    @rule(nsqd=st.sampled_from(NSQDS), shares=SHARES, most=st.one_of(st.none(), st.integers(1, 12)))
    def delete(self, nsqd: str, shares: list[bool], most: int | None) -> None:
        """Of a topic that is deleted, a part of the messages may be in a file that is not finished."""
        if not self.is_known(nsqd):
            return
        self.archive_rest(nsqd)
        self.publish(nsqd, len(shares))
        self.share(nsqd, shares)
        self.world.delete(nsqd)
        self.step(most)

    @precondition(lambda self: self.world.notes_ends)
    @rule(nsqd=st.sampled_from(NSQDS), shares=SHARES, most=st.one_of(st.none(), st.integers(1, 12)))
    def remove(self, nsqd: str, shares: list[bool], most: int | None) -> None:
        """All nsq-to-files but one finish their files before the nsqd is removed, and know how many messages there were."""
        if self.world.gone or nsqd in self.world.down or not self.is_known(nsqd):
            return
        self.finish_all()
        self.archive_rest(nsqd)
        self.publish(nsqd, len(shares))
        self.share(nsqd, shares)
        self.world.delete(nsqd)
        self.world.gone.add(nsqd)
        self.step(most)

    def is_known(self, nsqd: str) -> bool:
        """True if the stream has read the present log of an nsqd."""
        end = self.offset.ends.get(LogKey(TOPIC, f"{nsqd}:4151")) if self.offset else None
        log = self.world.logs[nsqd]
        return end is not None and end.epoch == log.epoch and not log.is_deleted

    def archive_rest(self, nsqd: str) -> None:
        log = self.world.logs[nsqd]
        rest = log.ids[log.archived :]
        log.archived = len(log.ids)
        self.world.write({nsqd: rest}, is_described=True)

    @rule(nsqd=st.sampled_from(NSQDS), count=NUMBERS)
    def create_again(self, nsqd: str, count: int) -> None:
        self.finish_all()
        if nsqd not in self.world.gone:
            super().create_again(nsqd, count)

    def step(self, most: int | None, *, crashes: bool = False) -> bool:
        if self.offset is None:
            self.finish_all()  # else the archive begins later than the topic, which is a WARNING
        try:
            return super().step(most, crashes=crashes)
        except LostMessages:
            assert self.world.has_only_unfinished()
        self.finish_all()
        self.restart()
        return super().step(most, crashes=crashes)

    def rows(self, before: TopicOffset, after: TopicOffset) -> list[int]:
        """Messages are archived and dropped before they are read; the same batch is read again when files are finished."""
        shares, self.shares = self.shares, []
        for nsqd in NSQDS:
            self.share(nsqd, shares)
        for log in self.world.logs.values():
            log.dropped = log.archived
        try:
            return super().rows(before, after)
        except LostMessages:
            assert self.world.has_only_unfinished()
        self.finish_all()
        self.restart()
        return super().rows(before, after)


TestStreams = Streams.TestCase
# Without the phase that explains failures: it traces each line, which takes longer than the rest.
PHASES = set(Phase) - {Phase.explain}
TestStreams.settings = settings(max_examples=25, stateful_step_count=25, deadline=None, phases=PHASES)
TestLossyStreams = LossyStreams.TestCase
TestLossyStreams.settings = TestStreams.settings
TestSharedStreams = SharedStreams.TestCase
TestSharedStreams.settings = TestStreams.settings


def test_the_last_file_of_a_deleted_topic_is_finished_after_the_archive_was_listed() -> None:
    """Its nsqd did not answer at that time. What the archive lacked then is there when the nsqd says how many there were."""
    state = SharedStreams()
    state.begin_to_archive(notes_ends=True)
    state.begin(has_location=False, parts=1)
    state.publish(nsqd="b", count=4)
    state.batch(most=None, crashes=False)
    state.publish(nsqd="a", count=2)
    state.stop_or_start(nsqd="b")
    state.delete(nsqd="b", shares=[True, True, False, False], most=None)
    state.teardown()


def test_small_batches_go_on_behind_messages_that_are_lost() -> None:
    """The archive has messages before and behind them in one file, which the plan counts as waiting."""
    state = LossyStreams()
    state.begin(has_location=False, parts=1)
    state.publish("a", 20)
    state.batch(most=None, crashes=False)
    state.publish("a", 10)
    state.lose_the_file_of_one_of_two("a", [True] * 10 + [False] * 15 + [True] * 5)
    state.drop("a", 25)
    state.options = replace(state.options, fails_on_loss=False)
    state.restart()
    state.teardown()
    assert len(state.found) == 25


def test_an_nsqd_that_is_not_there_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """It may be gone, or start again; the query asks for it, which may take a minute, for a small share of its time."""
    asked = 0

    class Counted(ModelTopics):
        def by_tcp_address(self) -> Any:
            nonlocal asked
            asked += 1
            state.now_s += 5  # the time until it gives up
            return super().by_tcp_address()

    state = Streams()
    state.begin(has_location=False, parts=1)
    state.options = replace(state.options, gone=frozenset())
    state.restart()
    state.plan.logs.topics = Counted(state.options, state.world)
    state.publish("a", 3)
    state.batch(most=None, crashes=False)
    state.visit("v", 2)
    before = asked
    for _ in range(4):  # a minute passes before each
        state.publish("a", 1)
        state.batch(most=None, crashes=False)
    assert len(state.found) == 7
    assert asked - before == 2, "at once, and after twenty times as long as it took"
    assert (
        caplog.text.count("the archive has messages of topic orders of nsqd v:4150, which is not there") == 2
    )
    state.options = replace(state.options, gone=frozenset(("*",)))
    state.restart()
    state.teardown()


@pytest.mark.parametrize(
    ("deferred", "text"),
    [
        (
            0,
            "2 messages of topic orders on a:4151, from number 2 on, were dropped before they were read: the archive",
        ),
        (1, "from number 2 on, were dropped before they were read, but for 1 that nsqd keeps for a channel"),
        (
            3,
            "from number 2 on, nsqd keeps for a channel that has not finished them (deferred ones), and does not hand",
        ),
    ],
)
def test_what_the_archive_lacks_may_be_deferred(deferred: int, text: str) -> None:
    """Nsq-to-file gets such messages when they are due, and nsqd keeps them in a file that it does not hand out."""
    state = Streams()
    state.begin(has_location=False, parts=1)
    state.publish("a", 2)
    state.finish_file((2, 0), 0, is_described=True)
    state.batch(most=None, crashes=False)
    state.publish("a", 4)
    state.world.logs["a"].dropped = 4
    assert isinstance(state.plan.logs.topics, ModelTopics)
    state.plan.logs.topics.deferred = deferred
    with pytest.raises(LostMessages) as lost:
        state.step(None)
    assert text in str(lost.value)


def test_earliest_of_a_live_topic_says_what_it_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Path("/nonexistent"))
    world.publish("a", 5)
    world.logs["a"].dropped = 3
    options = live_options({"nsqd": "a:4151", "topic": TOPIC, "startingOffsets": "earliest"}, 0)
    plan = Planner(options, ("id",))
    topics = plan.logs.topics = ModelTopics(options, world)
    there = plan.retained(of_all=True)
    assert plan.beginning(there).ends[LogKey(TOPIC, "a:4151")].seq == 3
    assert caplog.text == ""
    topics.deferred = 2
    plan.beginning(there)
    assert (
        "2 messages of topic orders on a:4151 are not read: they are older than the earliest one"
        in caplog.text
    )


class Moved(ModelTopics):
    """The nsqd `a` has the address of `c` now. Unless another one has its old address, nobody answers there."""

    nsqds: tuple[str, ...] = ("b", "c")

    def retained(self, known: Iterable[LogKey] = (), *, of_all: bool = False) -> dict[LogKey, Retained]:
        logs = [LogKey(TOPIC, f"{nsqd}:4151") for nsqd in self.nsqds]
        return {log: self.read(log, seq=0) for log in logs}

    def read(self, log: LogKey, **place: int) -> Retained:
        if log.nsqd.partition(":")[0] not in self.nsqds:
            raise ArchiveError(f"{log.nsqd}: Connection refused")
        return super().read(log, **place)

    def by_tcp_address(self) -> Any:
        return {f"{nsqd}:4150": f"{nsqd}:4151" for nsqd in self.nsqds}, []


@pytest.mark.parametrize("is_taken", [False, True])
def test_an_nsqd_that_has_another_address_is_asked_there_alone(is_taken: bool) -> None:
    """Its old address is in the checkpoint; another nsqd may have it by now, whose messages are not those that were read."""
    state = Streams()
    state.begin(has_location=False, parts=1)
    state.options = replace(state.options, gone=frozenset())
    state.restart()
    state.publish("a", 4)
    state.finish_file((2, 0), 0, is_described=True)
    state.batch(most=None, crashes=False)
    before = state.offset
    assert before is not None
    assert before.ends.keys() == {LogKey(TOPIC, "a:4151"), LogKey(TOPIC, "b:4151")}
    moved = Moved(state.options, state.world)
    state.world.logs["c"] = state.world.logs.pop("a")
    state.world.publish("c", 3)
    if is_taken:
        moved.nsqds = ("a", "b", "c")
        state.world.logs["a"] = Log(9)
        state.world.publish("a", 5)
    state.restart()
    state.plan.logs.topics = moved
    after = state.plan.batch(before, state.plan.retained(before.ends, of_all=True), None, None).offset
    assert after.ends.keys() == {LogKey(TOPIC, f"{nsqd}:4151") for nsqd in moved.nsqds}
    state.found.update(state.rows(before, after))
    state.check()


def test_files_whose_ids_overlap_are_read_once_however_often_they_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: Counter[str] = Counter()
    read = archived_files.read

    def counted(split: Any, *more: Any) -> Any:
        reads[split.path] += 1
        return read(split, *more)

    monkeypatch.setattr(archived_files, "read", counted)
    state = SharedStreams()
    state.begin_to_archive(notes_ends=True)
    state.begin(has_location=False, parts=1)
    state.publish("a", 20)
    state.share("a", [True, False] * 10)
    state.finish_all()
    state.drop("a", 20)
    overlapping = [str(path) for path in state.world.files]
    for _ in range(5):
        state.visit("v", 1)
        state.batch(most=3, crashes=False)
    assert [reads[path] for path in overlapping] == [1, 1]
    state.teardown()
