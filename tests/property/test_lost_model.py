"""Log files are removed, cut and flipped between two lives of nsqd, and come back: lost is never finished.

Each message is, for each channel, in exactly one of queued, in flight, deferred, finished, lost; and it is lost only
while no file has it. What comes back is delivered.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import gevent
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader, Incomplete, decode, next_record
from tests.property.model import DEFERRED, FINISHED, IN_FLIGHT, LOST
from tests.property.real import observe
from tests.support.examples import examples
from tests.unit.fakes import SECOND, Received, World, close_descriptors, quick_syncs, start_broker

CHANNELS = ("a", "b")
FILE_BYTES = 400
DELAY_NS = 500 * SECOND

share = st.floats(0, 1, exclude_max=True)
channel_names = st.sampled_from(CHANNELS)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 12)),
        st.tuples(st.just("finish"), channel_names, share),
        st.tuples(st.just("requeue"), channel_names, share, st.booleans()),
        st.tuples(st.just("compact")),
        st.tuples(
            st.just("restart"),
            st.booleans(),
            st.lists(st.tuples(st.sampled_from("rcfb"), share, share), max_size=3),
        ),
    ),
    min_size=5,
    max_size=25,
)


def readable(path: Path) -> Iterator[int]:
    """The numbers of the messages in a log file whose checksums are right."""
    data = path.read_bytes()
    try:
        salt = FileHeader.decode(data[:FILE_HEADER_BYTES]).salt
    except Damaged:
        return
    position = next_record(data, FILE_HEADER_BYTES, salt)
    while position is not None:
        try:
            batch, after = decode(data, position, salt)
        except (Damaged, Incomplete):
            after = position + 1
        else:
            yield from range(batch.first_seq, batch.end_seq)
        position = next_record(data, after, salt)


class Lives:
    """A topic with two channels, and a plain model of it.

    finished  the numbers that each channel has finished
    drawer    the files as they were before they were harmed
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.world = World()
        self.published = 0
        self.finished: dict[str, set[int]] = {name: set() for name in CHANNELS}
        self.drawer: dict[str, bytes] = {}
        self.start()

    def start(self) -> None:
        self.broker = start_broker(
            self.world, self.directory, is_same_boot=True, max_bytes_per_file=FILE_BYTES, mem_queue_size=0
        )
        self.topic = self.broker.get_topic("t")
        self.channels = {name: self.broker.get_channel(self.topic, name) for name in CHANNELS}
        self.consumers = {
            name: self.world.consumer(channel, 1 << 30, 1 << 60) for name, channel in self.channels.items()
        }
        self.in_hand: dict[str, dict[int, Received]] = {name: {} for name in CHANNELS}
        self.take()

    def take(self) -> None:
        self.world.run()
        for name, consumer in self.consumers.items():
            for message in consumer.take():
                number = int(message.body)
                assert number not in self.finished[name], "finished messages stay finished"
                self.in_hand[name][number] = message

    # ---- what happens

    def publish(self, count: int) -> None:
        numbers = range(self.published, self.published + count)
        self.published += count
        assert not self.world.publish(self.topic, *[b"%020d" % number for number in numbers]).failures
        self.take()

    def finish(self, name: str, part: float) -> None:
        for number in self.some(name, part):
            self.consumers[name].finish(self.in_hand[name].pop(number))
            self.finished[name].add(number)
        self.save()

    def requeue(self, name: str, part: float, is_delayed: bool) -> None:
        for number in self.some(name, part)[:5]:
            self.consumers[name].requeue(self.in_hand[name].pop(number), DELAY_NS if is_delayed else 0)
        self.save()

    def some(self, name: str, part: float) -> list[int]:
        numbers = sorted(self.in_hand[name])
        first = int(len(numbers) * part)
        return numbers[first : first + 6]

    def save(self) -> None:
        self.world.pass_time(SECOND)
        self.broker.journals.settle()  # on a slow disk, a thread writes
        self.take()

    def compact(self) -> None:
        self.save()
        self.broker.housekeeper.run()

    def restart(self, is_clean: bool, harm: list[tuple[str, float, float]]) -> None:
        self.save()
        if is_clean:
            close_broker(self.broker)
        # Syncs of this life must not end in the next one, on descriptors that others have by then.
        for _ in range(5):
            gevent.sleep(0)
        close_descriptors(self.directory)
        for what, place, at in harm:
            self.give_back() if what == "b" else self.harm(what, place, at, is_clean)
        self.start()

    def harm(self, what: str, place: float, at: float, is_clean: bool) -> None:
        """Remove, cut or flip a file; after a kill not the last one, whose end is not known then."""
        files = self.files() if is_clean else self.files()[:-1]
        if not files:
            return
        path = files[int(len(files) * place)]
        data = bytearray(path.read_bytes())
        if path.name not in self.drawer:
            self.drawer[path.name] = bytes(data)
        offset = int(len(data) * at)
        if what == "r":
            path.unlink()
        elif what == "c":
            path.write_bytes(data[:offset])
        elif data:  # it may have been cut to nothing before
            data[offset] ^= 8
            path.write_bytes(data)

    def give_back(self) -> None:
        for name, data in self.drawer.items():
            path = self.directory / name
            if not path.exists() or path.read_bytes()[:FILE_HEADER_BYTES] == data[:FILE_HEADER_BYTES]:
                path.write_bytes(data)  # else it was compacted in the meantime
        self.drawer.clear()

    def files(self) -> list[Path]:
        return sorted(self.directory.glob("t.*.log"))

    # ---- what holds

    def check(self) -> None:
        """Each message is in one state; those that are lost are in no file."""
        present = {number for path in self.files() for number in readable(path)}
        for name, channel in self.channels.items():
            found = defaultdict(set)
            for seq, (state, _, _) in observe(channel).items():
                found[state].add(seq)
            assert found[FINISHED] == self.finished[name]
            assert found[IN_FLIGHT] == set(self.in_hand[name])
            assert not found[LOST] & present
            missing = set(range(self.published)) - self.finished[name] - set(self.in_hand[name]) - present
            assert missing <= found[LOST] | found[DEFERRED], "which are read when they are due"
            assert channel.lost_count >= len(found[LOST])

    def end(self) -> None:
        """All that is there comes, also what was lost until now."""
        self.restart(True, [("b", 0, 0)])
        self.world.pass_time(DELAY_NS + SECOND)
        self.take()
        present = {number for path in self.files() for number in readable(path)}
        for name in CHANNELS:
            assert set(self.in_hand[name]) | self.finished[name] >= present
        self.check()


# All files are gone: after a kill, no end of the log says how far it went.
ALL_GONE = [*[("publish", 1)] * 3, ("restart", True, [("r", 0.0, 0.0)]), ("restart", False, [])]


@settings(max_examples=examples(150), deadline=None)
@given(steps=operations)
@example(steps=ALL_GONE)
def test_lost_is_never_finished(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder, quick_syncs():
        lives = Lives(Path(folder))
        try:
            for what, *arguments in steps:
                getattr(lives, str(what))(*arguments)
                lives.check()
            lives.end()
        finally:
            close_descriptors(Path(folder))
