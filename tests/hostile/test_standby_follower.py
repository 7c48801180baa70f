"""A standby whose primary lies: nothing that a channel had not finished is lost, and no answer ends the attempts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.broker.state_files import CLOCK_FILE
from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epoch, encode_epoch_file
from nsqd_py.diskqueue.journals.journal import DELETED, SNAPSHOT, encode_entry
from nsqd_py.diskqueue.records import FileHeader
from nsqd_py.feed.codec import BEGIN, COMMIT, PART, REMOVE, WRITE
from nsqd_py.feed.lag import Lag
from nsqd_py.feed.pieces import TopicListing
from nsqd_py.standby.copies.data_path import StandbyState, write_state
from nsqd_py.standby.messages import round_frame
from tests.support.hostile_primary import frame, hostile_primary
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_frames import file_frame, listed_frame, topic_frame
from tests.support.standby_processes import DEADLINE_S, consume_all, figures_of, wait_until_it_follows
from tests.support.sweeps import sampled

pytestmark = pytest.mark.ours

BODIES = [b"precious %d" % number for number in range(3)]
END = len(BODIES)
CREATED = Epoch(100, 0)
LOG, JOURNAL = log_file_name("t", 0), "t:c.cursor"
ALL_FINISHED = encode_entry(SNAPSHOT, 1 << 40, [], [])
EMPTY_LOG = FileHeader(9, 0, 0).encode()

# Frames, for the offset up to which the standby has the log file.
Frames = Callable[[int], list[bytes]]


@pytest.fixture(scope="module")
def primary_path(tmp_path_factory) -> Path:
    """The data path of a primary with three messages that its channel has not finished."""
    path = tmp_path_factory.mktemp("primary") / "data"
    with NsqdProcess(path).start() as nsqd:
        nsqd.create("t", "c")
        for body in BODIES:
            nsqd.post("/pub?topic=t", body)
        nsqd.stop()
    (path / EPOCHS_FILE).write_bytes(encode_epoch_file(0, {"t": (CREATED,)}))
    return path


def new_version(name: str, data: bytes) -> list[bytes]:
    return [file_frame(BEGIN, name), file_frame(PART, name, 0, data), file_frame(COMMIT, name)]


def listed(files: dict[str, int], *epochs: Epoch, journals: tuple[str, ...] = (JOURNAL,)) -> list[bytes]:
    epochs = epochs or (CREATED,)
    return [topic_frame(TopicListing("t", epochs, 1 << 40, files, list(journals))), listed_frame()]


def end(number: int = 1) -> bytes:
    return round_frame(number, Lag())


ATTACKS: dict[str, Frames] = {
    "no-files": lambda _: [*listed({}), end()],
    "no-files-and-a-later-epoch": lambda _: [*listed({}, CREATED, Epoch(200, 1 << 40)), end()],
    "no-files-and-an-epoch-after-all-messages": lambda _: [*listed({}, CREATED, Epoch(200, END)), end()],
    "another-log": lambda _: [*listed({}, Epoch(300, 0)), end()],
    "no-epochs": lambda _: [topic_frame(TopicListing("t")), listed_frame(), end()],
    "not-listed": lambda _: [listed_frame(), end()],
    "listed-twice": lambda size: [*listed({LOG: size}), *listed({}), end()],
    "removed": lambda size: [*listed({LOG: size}), file_frame(REMOVE, LOG), end()],
    "removed-after-a-promotion": lambda size: [
        *listed({LOG: size}, CREATED, Epoch(200, END)),
        file_frame(REMOVE, LOG),
        end(),
    ],
    "the-channel-first": lambda size: [
        *listed({LOG: size}, journals=()),
        end(),
        file_frame(REMOVE, LOG),
        end(2),
    ],
    "the-channel-is-deleted": lambda size: [
        *listed({LOG: size}),
        *new_version(JOURNAL, encode_entry(DELETED, 0, [], [])),
        end(),
        file_frame(REMOVE, LOG),
        end(2),
    ],
    "written-over": lambda size: [*listed({LOG: size}), file_frame(WRITE, LOG, 0, EMPTY_LOG), end()],
    "replaced": lambda size: [*listed({LOG: size}), *new_version(LOG, EMPTY_LOG), end()],
    "replaced-and-removed": lambda size: [
        *listed({LOG: size}),
        *new_version(LOG, EMPTY_LOG),
        file_frame(REMOVE, LOG),
        end(),
    ],
    "without-the-end-of-the-round": lambda size: [*listed({LOG: size}), file_frame(REMOVE, LOG)],
}
# These are what any primary may say of messages that its standby never had for itself.
ATTACKS_ON_WHAT_IT_HAD_AS_A_PRIMARY: dict[str, Frames] = {
    "finished": lambda size: [*listed({LOG: size}), *new_version(JOURNAL, ALL_FINISHED), end()],
    "finished-and-removed": lambda size: [
        *listed({LOG: size}),
        *new_version(JOURNAL, ALL_FINISHED),
        file_frame(REMOVE, LOG),
        end(),
    ],
    "other-state": lambda size: [
        *listed({LOG: size}),
        *new_version("nsqd.dat", b'{"topics":[],"version":"1.3.0"}'),
        *new_version(EPOCHS_FILE, encode_epoch_file(1 << 60, {})),
        *new_version(CLOCK_FILE, b"x"),
        end(),
    ],
}


def attack(path: Path, frames: Frames, tmp_path: Path, count: int = len(BODIES)) -> None:
    """Let the nsqd of a data path follow the primary; the messages are then in a directory, and are counted."""
    size = (path / LOG).stat().st_size

    def script(offer: dict[str, Any]) -> Iterator[bytes]:
        yield from frames(size)

    with (
        hostile_primary(script) as primary,
        NsqdProcess(path, f"--standby-of=127.0.0.1:{primary.port}").start() as nsqd,
    ):
        wait_until(lambda: primary.handled, DEADLINE_S, "the standby to read everything")
        assert figures_of(nsqd)["set_aside_messages"] == count
    found = []
    for number, kept in enumerate(sorted(path.glob("standby-*/"))):
        with NsqdProcess(Path(shutil.copytree(kept, tmp_path / f"kept{number}"))).start() as copy:
            found.append(consume_all(copy, "t", "c"))
    assert BODIES in found


@pytest.fixture
def path(primary_path, tmp_path) -> Path:
    """A copy of it, for one test."""
    return Path(shutil.copytree(primary_path, tmp_path / "data"))


@pytest.mark.parametrize("name", [*ATTACKS, *ATTACKS_ON_WHAT_IT_HAD_AS_A_PRIMARY])
def test_what_a_primary_had_is_set_aside(name, path, tmp_path):
    attack(path, (ATTACKS | ATTACKS_ON_WHAT_IT_HAD_AS_A_PRIMARY)[name], tmp_path)


def test_what_a_primary_had_not_finished_is_kept_for_a_week(path, tmp_path):
    """A later epoch proves that the primary has the messages, so that it may finish them; they are kept, and not counted."""

    def finished_after_a_promotion(size):
        listing = listed({LOG: size}, CREATED, Epoch(200, END))
        return [*listing, *new_version(JOURNAL, ALL_FINISHED), file_frame(REMOVE, LOG), end()]

    attack(path, finished_after_a_promotion, tmp_path, count=0)


@pytest.mark.parametrize(
    "name", sampled(ATTACKS, "no-files", "removed-after-a-promotion", "replaced-and-removed")
)
def test_what_a_standby_copied_is_set_aside(name, path, tmp_path):
    """It was never a primary, and the messages are not finished."""
    write_state(path, StandbyState("127.0.0.1:1", is_complete=True))
    attack(path, ATTACKS[name], tmp_path)


def topic(**changed: object) -> bytes:
    fields = {"topic": "t", "epochs": [], "next_seq": 0, "files": {}, "journals": []} | changed
    return frame(b"\x06" + json.dumps(fields).encode())


LIST = [listed_frame()]
ODD_ANSWERS: dict[str, list[bytes]] = {
    "a part that was not begun": [*LIST, file_frame(PART, LOG, 0, b"x")],
    "a version that was not begun": [*LIST, file_frame(COMMIT, LOG)],
    "a hole": [*LIST, file_frame(WRITE, LOG, 1 << 60, b"x")],
    "a hole in a version": [*LIST, file_frame(BEGIN, LOG), file_frame(PART, LOG, (1 << 64) - 1, b"x")],
    "a short log": [*LIST, file_frame(WRITE, LOG, 0, b"x")],
    "an empty log": [*LIST, file_frame(BEGIN, LOG), file_frame(COMMIT, LOG)],
    "another path": [*LIST, file_frame(WRITE, "../t.cursor", 0, b"x")],
    "a long name": [*LIST, file_frame(WRITE, "t" * 300 + ".cursor", 0, b"x")],
    "a high number in a name": [*LIST, file_frame(WRITE, "t." + "9" * 20 + ".log", 0, b"x")],
    "a name that is no UTF-8": [*LIST, frame(b"\1\2\0" + bytes(8) + b"\xff\xfe")],
    "files before the list": [file_frame(REMOVE, LOG)],
    "a round before the list": [end()],
    "the same round twice": [*LIST, end(), end()],
    "a number below zero": [topic(next_seq=-1)],
    "a fraction": [topic(files={LOG: 1.5})],
    "no object": [frame(b"\x06[]")],
    "lists in lists": [frame(b"\x06" + b"[" * 100_000)],
    "a list for an object": [topic(files=[1])],
    "a number for a list": [topic(journals=1)],
    "epochs of another type": [topic(epochs=[["x", None]])],
    "a topic that is no name": [topic(topic={"a": 1})],
    "an unknown message": [frame(b"\x63")],
    "no message": [frame(b"")],
    "a short round": [frame(b"\x08\1")],
    "a frame without end": [b"\x7f\xff\xff\xff\0\0\0\3"],
    "a frame below zero": [b"\xff\xff\xff\xff\0\0\0\3"],
    "an error": [frame(b"E_INVALID \xff\0", 1)],
}


def test_an_odd_answer_ends_in_another_attempt(path):
    """Each of them as a sentence in /stats; in the end the standby follows as if nothing had been."""
    write_state(path, StandbyState("127.0.0.1:1", is_complete=True))
    # Between two of them it follows for a moment, so that the pauses stay short.
    answers = [odd for each in ODD_ANSWERS.values() for odd in (each, [*LIST, end(), frame(b"E_CLOSED", 1)])]

    def script(offer):
        yield from answers.pop(0) if answers else [*LIST, end()]

    with (
        hostile_primary(script) as primary,
        NsqdProcess(path, f"--standby-of=127.0.0.1:{primary.port}").start() as nsqd,
    ):
        wait_until(lambda: figures_of(nsqd)["error"], what="a reason")
        wait_until(
            lambda: primary.attempts == 2 * len(ODD_ANSWERS) + 1, 10 * len(ODD_ANSWERS), "all attempts"
        )
        wait_until_it_follows(nsqd)
        assert figures_of(nsqd)["error"] == ""
        assert "Traceback" not in nsqd.log_text()
        assert nsqd.http("GET", "/ping").text == "OK"
