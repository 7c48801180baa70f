"""What a start finds on disk: torn ends, damage, leftovers, gaps."""

from pathlib import Path

import pytest

from nsqd_py.diskqueue.files.log_file import LogFile, log_file_name, run_to_end
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, FileHeader, encode_header
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.queue.channel import Channel
from tests.unit.fakes import FakeConsumer, World, close_descriptors, make_batch, start_broker
from tests.unit.log_bench import TOPIC, adopt, append_to, clear, flip, read_all

MESSAGE = b"message %02d"
RECORD_BYTES = RECORD_HEADER_BYTES + 4 + len(MESSAGE % 0)
PER_FILE = 4
FILE_BYTES = FILE_HEADER_BYTES + PER_FILE * RECORD_BYTES


def write_log(directory: Path, count: int) -> list[Path]:
    """`count` records of one message each, in files of four; left as by a crash."""
    log = TopicLog(directory, TOPIC, FILE_BYTES, pytest.fail)
    for seq in range(count):
        append_to(log, make_batch(seq, MESSAGE % seq))
    close_descriptors(directory)
    return sorted(directory.glob("*.log"))


def expected(*ranges: range) -> list[tuple[int, bytes]]:
    return [(seq, MESSAGE % seq) for numbers in ranges for seq in numbers]


def place_of(seq: int) -> int:
    """Where a record begins in its file."""
    return FILE_HEADER_BYTES + seq % PER_FILE * RECORD_BYTES


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


# --- the end of the last file


@pytest.mark.parametrize("ending", ["truncated", "zeros"])
def test_torn_at_every_offset(directory: Path, ending: str) -> None:
    """Whatever a crash left of the last record: those before it are there, and the log goes on."""
    (path,) = write_log(directory, 3)
    whole = path.read_bytes()[: place_of(3)]
    for cut in range(place_of(2), place_of(3)):
        path.write_bytes(whole[:cut].ljust(FILE_BYTES if ending == "zeros" else 0, b"\0"))
        damage = []
        log = adopt(directory, FILE_BYTES, damage)
        assert (read_all(log), log.next_seq) == (expected(range(2)), 2)
        append_to(log, make_batch(2, b"another"))
        whole_again = [*expected(range(2)), (2, b"another")]
        assert read_all(log) == whole_again
        close_descriptors(directory)
        assert read_all(adopt(directory, FILE_BYTES, damage)) == whole_again
        # A header that is whole can be recognised: what is cut off is kept and reported.
        if cut >= place_of(2) + RECORD_HEADER_BYTES:
            assert len(damage) == 1
            (aside,) = directory.glob("*.damaged")
            assert aside.read_bytes().startswith(whole[place_of(2) : cut])
        assert not [text for text in damage if "torn" not in text]
        clear(directory)


LITTLE = 64 * 1024
ENDS = {
    "nothing": (b"", False),
    "a little space": (bytes(LITTLE), False),
    "much space": (bytes(LITTLE + 1), True),
    "a torn record": (b"torn".ljust(RECORD_BYTES, b"\0"), True),
    "a byte in the space": (bytes(LITTLE - 1) + b"x", True),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_little_preallocated_space_stays(directory: Path, end: str) -> None:
    """The next records are written into it; what else follows the last record is cut off."""
    behind, is_cut = ENDS[end]
    (path,) = write_log(directory, 2)
    path.write_bytes(path.read_bytes()[: place_of(2)] + behind)
    log = adopt(directory, FILE_BYTES, [])
    assert path.stat().st_size == place_of(2) + (0 if is_cut else len(behind))
    append_to(log, make_batch(2, MESSAGE % 2))
    assert read_all(log) == expected(range(3))
    close_descriptors(directory)
    assert read_all(adopt(directory, FILE_BYTES, [])) == expected(range(3))


def test_without_preallocation_no_space_stays(directory: Path) -> None:
    (path,) = write_log(directory, 2)
    assert path.stat().st_size == FILE_BYTES
    log = TopicLog(directory, TOPIC, FILE_BYTES, pytest.fail)
    log.allocate_ahead(enabled=False)
    log.adopt(recover_file(LogFile.open(path), is_last=True), is_last=True)
    assert path.stat().st_size == place_of(2)


# --- damage in the middle


@pytest.mark.parametrize("bits", [0x01, 0x40, 0xFF])
def test_every_damaged_byte_in_the_last_file_loses_one_record(directory: Path, bits: int) -> None:
    (path,) = write_log(directory, 4)
    good = path.read_bytes()
    for place in range(place_of(1), place_of(2)):
        path.write_bytes(good)
        flip(path, place, bits)
        damage = []
        log = adopt(directory, FILE_BYTES, damage)
        assert read_all(log) == expected(range(1), range(2, 4)), place
        assert damage
        assert log.next_seq == 4
        close_descriptors(directory)


@pytest.mark.parametrize("bits", [0x01, 0x40, 0x80])
def test_a_damaged_byte_in_a_closed_file_loses_one_record(directory: Path, bits: int) -> None:
    """Seen from a consumer, and from a producer who goes on."""
    write_log(directory, 10)
    files = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    for place in range(RECORD_BYTES):
        for name, content in files.items():
            (directory / name).write_bytes(content)
        flip(directory / log_file_name(TOPIC, 0), place_of(1) + place, bits)
        others = [MESSAGE % seq for seq in range(10) if seq != 1]
        assert received(directory, b"new") == [*others, b"new"], f"byte {place}"
        clear(directory)


def received(directory: Path, *published: bytes) -> list[bytes]:
    """What a consumer of a new channel gets after a start, and after these publishes."""
    world = World()
    broker = start_broker(world, directory, max_bytes_per_file=FILE_BYTES)
    topic = broker.topics[TOPIC]
    channel = broker.get_channel(topic, "ch")
    consumer = world.consumer(channel, rdy=100)
    next_seq = topic.next_seq
    for body in published:
        world.publish(topic, body)
    assert topic.next_seq == next_seq + len(published)
    assert channel.depth == 0
    return consumer.bodies()


# --- files that are used again


def test_leftovers_of_a_used_file_never_come_back(directory: Path) -> None:
    """The new file's records lie over the old ones; the rest of the old ones lies right behind them."""
    log = TopicLog(directory, TOPIC, FILE_BYTES, pytest.fail)
    for seq in range(2 * PER_FILE):
        append_to(log, make_batch(seq, MESSAGE % seq))
    log.drop_unneeded(lambda low, high: False)
    append_to(log, make_batch(8, MESSAGE % 8))
    close_descriptors(directory)
    used = directory / log_file_name(TOPIC, 8)
    assert MESSAGE % 3 in used.read_bytes()

    for _ in range(2):
        again = adopt(directory, FILE_BYTES, [])
        assert read_all(again) == expected(range(4, 9))
        assert again.next_seq == 9
        close_descriptors(directory)


def test_leftovers_with_the_numbers_that_are_expected_never_come_back(directory: Path) -> None:
    """The worst case: old records that would go on exactly where the new ones end, but for the salt."""
    (path,) = write_log(directory, 4)
    file = run_to_end(LogFile.creating(directory / "other", FileHeader(1, 0, 0, is_reused=True), path))
    batch = make_batch(0, MESSAGE % 0)
    record = [encode_header(batch, file.header.salt), batch.body]
    file.append(record, sum(map(len, record)), 1)
    (directory / "other").rename(path)
    close_descriptors(directory)
    assert MESSAGE % 1 in path.read_bytes()
    log = adopt(directory, FILE_BYTES, [])
    assert read_all(log) == expected(range(1))


# --- files that are missing or cannot be read at all


@pytest.mark.parametrize("is_all", [True, False], ids=["all", "header"])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_file_whose_header_cannot_be_read_is_set_aside(directory: Path, index: int, is_all: bool) -> None:
    paths = write_log(directory, 12)
    if is_all:
        overwrite(paths[index], 0, bytes(paths[index].stat().st_size))
    else:
        flip(paths[index], 20, 1)
    content = paths[index].read_bytes()
    left = [seq for seq in range(12) if seq // PER_FILE != index]
    assert received(directory) == [MESSAGE % seq for seq in left]
    assert paths[index].with_name(paths[index].name + ".damaged").read_bytes() == content
    assert not paths[index].exists() or index == 2


def test_a_file_under_the_name_of_another_is_set_aside(directory: Path) -> None:
    paths = write_log(directory, 8)
    paths[1].rename(directory / log_file_name(TOPIC, 99))
    assert received(directory) == [MESSAGE % seq for seq in range(4)]
    assert (directory / (log_file_name(TOPIC, 99) + ".damaged")).exists()


# --- channels whose messages are lost


def test_lost_messages_that_were_waiting_are_finished_once(directory: Path) -> None:
    """Messages that a journal says are waiting, in records that are gone: neither queued nor counted."""

    def start() -> tuple[Channel, FakeConsumer]:
        world = World()
        broker = start_broker(world, directory, max_bytes_per_file=FILE_BYTES)
        channel = broker.get_channel(broker.get_topic(TOPIC), "ch")
        return channel, world.consumer(channel, rdy=100)

    write_log(directory, 8)
    channel, consumer = start()
    consumer.finish(*consumer.received[4:])
    consumer.requeue(consumer.received[1])
    consumer.requeue(consumer.received[2], delay_ns=10**12)
    channel.save_changes()
    close_descriptors(directory)
    overwrite(directory / log_file_name(TOPIC, 0), place_of(1), b"\xaa" * 2 * RECORD_BYTES)

    channel, consumer = start()
    assert (channel.depth, channel.deferred_count, channel.in_flight_count) == (0, 0, 2)
    assert consumer.bodies() == [MESSAGE % 0, MESSAGE % 3]
