"""The history of nsqadmin: its rings, its history, and its file."""

from __future__ import annotations

import os
from math import isnan, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqadmin_py.history.document import BadHistory, decode, encode, pack, unpack
from nsqadmin_py.history.file import HistoryFile
from nsqadmin_py.history.ring import Ring
from nsqadmin_py.history.series import COARSE_RANGE_S, LINE_RANGE_S, LINE_STEP_S, MOST_SERIES, History, Key
from nsqd_py.runtime.logs.daemon_log import Log

NOW_S = 1_800_000_000.0
ORDERS = Key("orders")


def same(one: list[float], other: list[float]) -> bool:
    return len(one) == len(other) and all(
        a == b or isnan(a) and isnan(b) for a, b in zip(one, other, strict=True)
    )


# ---- rings


def test_a_figure_that_never_changes_takes_no_memory() -> None:
    ring = Ring(1800)
    for step in range(5000):
        ring.put(step, 0.0)
    assert ring.size_bytes == 0
    assert ring.read(4998, 5001)[:2] == [0.0, 0.0]
    ring.put(5000, 1.0)
    assert ring.size_bytes == 4 * 1800
    assert same(ring.read(3200, 3202), [nan, 0.0])


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0.0, 0.0, 1.0, 2.5])), max_size=60),
    st.integers(1, 12),
)
def test_a_ring_is_like_a_dictionary_of_its_latest_steps(
    puts: list[tuple[int, float]], capacity: int
) -> None:
    ring, model, step = Ring(capacity), dict[int, float](), 0
    for ahead, value in puts:
        step += ahead
        ring.put(step, value)
        model[step] = value
    wanted = [model.get(at, nan) if step - capacity < at <= step else nan for at in range(step + 3)]
    assert same(ring.read(0, step + 3), wanted)
    first, last, data = ring.dump()
    if puts:
        assert same(Ring.load(capacity, first, last, data).read(0, step + 3), wanted)


# ---- the history


def record(history: History, time_s: float, key: Key = ORDERS, **values: float) -> None:
    history.record(time_s, [(key, values, ())])


def test_an_hour_in_small_steps_and_a_day_in_minutes() -> None:
    history = History()
    for second in range(0, 180, 2):
        record(history, NOW_S + second, depth=float(second))
    step_s, times, (depths,) = history.read(ORDERS, ["depth"], 10, NOW_S + 178)
    assert (step_s, times, depths) == (
        2.0,
        [NOW_S + second for second in (170, 172, 174, 176, 178)],
        [170.0, 172.0, 174.0, 176.0, 178.0],
    )
    step_s, times, (depths,) = history.read(ORDERS, ["depth"], COARSE_RANGE_S, NOW_S + 178)
    assert (step_s, len(times)) == (60.0, 1440)
    assert depths[-2:] == [29.0, 89.0]  # the means of two minutes that are over


def test_a_round_that_is_late_leaves_no_gap_and_a_pause_does() -> None:
    history = History()
    record(history, NOW_S, depth=1.0)
    record(history, NOW_S + 6, depth=2.0)
    record(history, NOW_S + 20, depth=3.0)
    _, _, (depths,) = history.read(ORDERS, ["depth"], 22, NOW_S + 20)
    assert same(depths, [1.0, 2.0, 2.0, 2.0, *[nan] * 6, 3.0])


def test_what_nobody_knows_is_unknown() -> None:
    history = History()
    record(history, NOW_S, depth=1.0)
    _, times, (depths, rates) = history.read(Key("others"), ["depth", "message_rate"], 10, NOW_S)
    assert len(times) == len(depths) == len(rates) == 5
    assert all(map(isnan, depths + rates))


def test_lines_are_means_of_the_last_minutes() -> None:
    history = History()
    now_s = NOW_S - NOW_S % LINE_STEP_S + LINE_RANGE_S
    for second in range(0, 120, 2):
        record(history, now_s - 100 + second, depth=float(second // 20))
    step_s, (known, unknown) = history.lines([ORDERS, Key("others")], "depth", now_s + 18)
    assert (step_s, len(known), len(unknown)) == (LINE_STEP_S, LINE_RANGE_S / LINE_STEP_S, len(known))
    assert known[-6:] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert all(map(isnan, known[:-6] + unknown))


def test_what_has_been_gone_for_a_day_is_forgotten() -> None:
    history = History()
    record(history, NOW_S, depth=1.0)
    record(history, NOW_S + COARSE_RANGE_S - 120, Key("other"), depth=1.0)
    assert ORDERS in history.series
    record(history, NOW_S + COARSE_RANGE_S + 120, Key("other"), depth=1.0)
    assert history.series.keys() == {Key("other")}


def test_there_are_never_more_series_than_that() -> None:
    history = History()
    history.record(NOW_S, [(Key(str(number)), {"depth": 1.0}, ()) for number in range(MOST_SERIES + 5)])
    assert len(history.series) == MOST_SERIES


# ---- the file


def full_history() -> History:
    history = History()
    for second in range(0, 130, 2):
        hostile = Key("<b>", "\u2028", "a:1")
        history.record(NOW_S + second, [(hostile, {"depth": second, "latency_0": 0.5}, (0.99,))])
        record(history, NOW_S + second, depth=7.0)
    return history


def test_no_damage_goes_unseen() -> None:
    data = pack(encode(full_history()))
    for place in range(0, len(data), max(1, len(data) // 200)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(BadHistory):
            decode(unpack(bytes(damaged)), History())
        with pytest.raises(BadHistory):
            decode(unpack(data[:place]), History())


def test_another_poll_interval_begins_anew() -> None:
    history = History(5.0)
    decode(encode(full_history()), history)
    assert not history.series


def test_a_damaged_file_is_set_aside_and_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"nsqadmin-history 2 00000000\nnonsense")
    history = History()
    file = HistoryFile(str(path), Log())
    file.open(history)
    assert not history.series
    assert not path.exists()
    (aside,) = tmp_path.glob("history.db.damaged-*")
    assert aside.read_bytes().endswith(b"nonsense")
    assert "is damaged (its checksum is wrong): set aside" in capfd.readouterr().err
    file.write(full_history())
    file.close()
    decode(unpack(path.read_bytes()), history)
    assert history.series
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        [aside.name, "history.db", "history.db.lock"]
    )


@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_what_is_no_regular_file_is_not_replaced(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """/dev/null is a natural value for "no file", and nsqadmin may run as root."""
    path = tmp_path / "history.db"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    file = HistoryFile(str(path), Log())
    file.open(History())
    file.write(full_history())
    file.close()
    assert "not a regular file; the history is kept in memory only" in capfd.readouterr().err
    assert os.listdir(tmp_path) == ["history.db"]
    assert not path.is_file()


def test_a_link_to_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("history.db")
    file = HistoryFile(str(tmp_path / "link"), Log())
    file.open(History())
    file.write(full_history())
    file.close()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "history.db").stat().st_size > 0


def test_two_do_not_overwrite_each_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.db"
    first, second = HistoryFile(str(path), Log()), HistoryFile(str(path), Log())
    first.open(History())
    second.open(History())
    second.write(full_history())
    assert not path.exists()
    assert "another nsqadmin uses it; the history is kept in memory only" in capfd.readouterr().err
    first.write(full_history())
    assert path.exists()
    first.close()
    second.close()


def test_what_cannot_be_encoded_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The next write may succeed."""
    file = HistoryFile(str(tmp_path / "history.db"), Log())
    file.open(History())
    file.write(full_history(), nodes=object())
    file.close()
    assert "cannot write" in capfd.readouterr().err
