"""A thin nsqd has unfinished messages only in its store: nothing takes it for one that has everything on its disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.network import port_pairs
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import consume_all
from tests.support.tool_process import run_tool

pytestmark = pytest.mark.ours

COUNT = 400
BODIES = [b"%05d" % number * 20 for number in range(COUNT)]
FLAGS = (
    "--store-interval=50ms",
    "--store-scrub-requests=0",
    "--store-retention-time=1h",
    "--max-bytes-per-file=10000",
    "--accept-standbys",
)


class Thin:
    """Makes nsqds with a store in a directory. `start` is a thin one: most messages are only in the store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = f"file://{directory}/store"
        self.made: list[NsqdProcess] = []

    def nsqd(self, name: str, *flags: str, **settings: Any) -> NsqdProcess:
        self.made.append(NsqdProcess(self.directory / name, *flags, **settings))
        return self.made[-1]

    def with_store(self, name: str, url: str = "", *flags: str) -> NsqdProcess:
        return self.nsqd(name, f"--store={url or self.store}", *FLAGS, *flags)

    def start(self, name: str = "thin") -> NsqdProcess:
        first = self.with_store("first").start()
        first.create("t", "c")
        first.publish("t", BODIES)
        wait_until(lambda: is_stored(first))
        first.restart()  # its base has the log files
        first.pub("t", b"last")
        wait_until(lambda: is_stored(first))
        wait_until(
            lambda: len(list(self.directory.glob("store/files/t/*.log"))) > 3, what="log files in the store"
        )
        assert first.stop() == 0
        shutil.rmtree(first.data_path)
        self.restore(name)
        return self.made[-1]

    def restore(self, name: str) -> NsqdProcess:
        thin = self.with_store(name, "", f"--restore-from={self.store}").start()
        assert len(list(thin.data_path.glob("t.*.log"))) <= 3
        assert depth(thin) == COUNT + 1
        return thin


def is_stored(nsqd: NsqdProcess) -> bool:
    shown = nsqd.stats()["store"]
    return shown["state"] == "storing" and not shown["lag_messages"] and not shown["lag_ms"]


def depth(nsqd: NsqdProcess) -> int:
    found: int = nsqd.wait_for_channel("t", "c")["depth"]
    return found


def on_disk(nsqd: NsqdProcess) -> int:
    """The number of messages in its log files, of which the first one is no hole."""
    first = sorted(nsqd.data_path.glob("t.*.log"))[0]
    return COUNT + 1 - int(first.name.split(".")[1])


def lost(nsqd: NsqdProcess) -> int:
    found: int = nsqd.channel_stats("t", "c").get("lost_count", 0)
    return found


@pytest.fixture
def thin(tmp_path: Path) -> Iterator[Thin]:
    made = Thin(tmp_path)
    yield made
    for nsqd in made.made:
        nsqd.destroy()


def run(*flags: str) -> tuple[int, str, str]:
    done = run_tool("nsq_apps.nsqd", *flags)
    return done.returncode, done.stdout, done.stderr


# ---- backups


def test_a_backup_of_a_thin_nsqd_is_refused(thin: Thin) -> None:
    nsqd = thin.start()
    target = thin.directory / "backup"
    status, output, errors = run(f"--backup-to={target}", f"--standby-of=127.0.0.1:{nsqd.tcp_port}")
    assert (status, output) == (1, "")
    assert "messages of topic t that are not finished are only in its store " + thin.store in errors
    assert f"give --store={thin.store}" in errors
    assert errors.count("\n") == 1
    assert not target.exists()
    other = f"--store=file://{thin.directory}/other"
    status, _, errors = run(f"--backup-to={target}", f"--standby-of=127.0.0.1:{nsqd.tcp_port}", other)
    assert (status, f"give --store={thin.store}" in errors) == (1, True)


def test_with_the_store_a_backup_of_a_thin_nsqd_has_everything(thin: Thin) -> None:
    nsqd = thin.start()
    target = thin.directory / "backup"
    primary = f"--standby-of=127.0.0.1:{nsqd.tcp_port}"
    status, _, errors = run(f"--backup-to={target}", primary, f"--store={thin.store}")
    assert (status, errors) == (0, "")
    data_path = thin.directory / "restored"
    status, _, errors = run(f"--restore-from={target}", f"--data-path={data_path}")
    assert (status, errors) == (0, "")
    restored = thin.nsqd("restored").start()
    assert lost(restored) == 0
    assert consume_all(restored, "t", "c") == [*BODIES, b"last"]


def test_a_backup_that_lacks_messages_is_not_restored_without_a_word(thin: Thin) -> None:
    """Backups of earlier versions do."""
    nsqd = thin.start()
    target = thin.directory / "backup"
    made = thin.directory / "made"
    assert (
        run(f"--backup-to={target}", f"--standby-of=127.0.0.1:{nsqd.tcp_port}", f"--store={thin.store}")[0]
        == 0
    )
    assert run(f"--restore-from={target}", f"--data-path={made}")[0] == 0
    sorted(made.glob("t.*.log"))[0].unlink()
    poor = thin.nsqd("made", "--accept-standbys").start()
    lacks = lost(poor)
    assert lacks > 0
    again = thin.directory / "again"
    assert run(f"--backup-to={again}", f"--standby-of=127.0.0.1:{poor.tcp_port}")[0] == 0
    status, output, errors = run(f"--restore-from={again}", f"--data-path={thin.directory / 'poor'}")
    assert (status, "start nsqd with" in output) == (1, True)
    assert (
        f"{lacks} messages of topic t that were not finished are not in {again}: they were lost before it was made"
        in errors
    )


# ---- standbys


def standby(thin: Thin, primary: NsqdProcess, *flags: str) -> NsqdProcess:
    return thin.nsqd("standby", f"--standby-of=127.0.0.1:{primary.tcp_port}", *flags).start()


def figures(nsqd: NsqdProcess) -> dict[str, Any]:
    found: dict[str, Any] = nsqd.stats()["standby"]
    return found


def test_a_standby_of_a_thin_primary_needs_the_same_store(thin: Thin) -> None:
    primary = thin.start()
    copy = standby(thin, primary)
    warning = "WARNING: STANDBY: the copy is not complete, and cannot be promoted"
    wait_until(lambda: warning in copy.log_text(), what="the warning")
    shown = figures(copy)
    assert f"{COUNT + 1 - on_disk(primary)} messages of t" in shown["error"]
    assert (shown["state"], shown["is_complete"]) == ("copying", False)
    assert f"give this standby --store={thin.store} too" in shown["error"]
    assert "the copy is not complete" in copy.http("GET", "/ping").text
    checked = run_tool("nsq_apps", "nsq_stat", f"--nsqd-http-address=127.0.0.1:{copy.http_port}", "--check")
    assert "unfinished messages only in its store" in checked.stdout + checked.stderr
    assert copy.http("POST", "/promote").status == 409
    primary.kill()
    assert copy.stop() == 0
    address = f"127.0.0.1:{primary.tcp_port}"
    errors = thin.nsqd("standby", "--promote").fails_to_start()
    assert f"{address} had unfinished messages only in its store" in errors
    promoted = thin.nsqd("standby", "--promote", f"--store={thin.store}").start()
    assert (depth(promoted), lost(promoted)) == (COUNT + 1, 0)
    assert sorted(consume_all(promoted, "t", "c")) == sorted([*BODIES, b"last"])


def test_a_standby_with_the_store_of_a_thin_primary_is_complete(thin: Thin) -> None:
    primary = thin.start()
    copy = standby(thin, primary, f"--store={thin.store}")
    wait_until(lambda: figures(copy)["state"] == "following")
    assert (figures(copy)["is_complete"], figures(copy)["error"]) == (True, "")


def test_a_standby_is_not_complete_while_a_channel_needs_the_history_in_the_store(thin: Thin) -> None:
    """It learns that while it follows."""
    primary = thin.with_store("primary").start()
    primary.create("t", "c")
    primary.publish("t", BODIES)
    copy = standby(thin, primary)
    assert len(consume_all(primary, "t", "c")) == COUNT
    wait_until(lambda: len(list(primary.data_path.glob("t.*.log"))) == 1, what="files to leave the disk")
    wait_until(lambda: figures(copy)["is_complete"])
    primary.post("/channel/seek?topic=t&channel=c&to=earliest")
    wait_until(lambda: "messages of t" in figures(copy)["error"], what="the error")
    assert not figures(copy)["is_complete"]
    assert len(consume_all(primary, "t", "c")) == COUNT
    wait_until(lambda: figures(copy)["is_complete"], what="the copy to be complete")
    assert figures(copy)["error"] == ""


# ---- another store


@pytest.mark.parametrize("where", ["another", "an empty one", "that of another nsqd", "none"])
def test_a_thin_nsqd_does_not_start_without_its_store(thin: Thin, where: str) -> None:
    nsqd = thin.start()
    assert nsqd.stop() == 0
    url = f"file://{thin.directory}/typo"
    if where == "an empty one":
        (thin.directory / "store").rename(thin.directory / "unmounted")
        url = thin.store
    if where == "that of another nsqd":
        other = thin.with_store("other", url).start()
        other.create("t", "c")
        assert other.stop() == 0
    flags = () if where == "none" else (f"--store={url}",)
    errors = thin.nsqd("thin", *flags).fails_to_start()
    assert f"lacks unfinished messages that are in the store {thin.store}" in errors
    assert "messages of topic t)" in errors
    assert (thin.directory / "typo/head.json").exists() == (where == "that of another nsqd")
    if where == "an empty one":
        assert not (thin.directory / "store/head.json").exists()
        shutil.rmtree(thin.directory / "store")
        (thin.directory / "unmounted").rename(thin.directory / "store")
    again = thin.with_store("thin").start()
    assert (depth(again), lost(again)) == (COUNT + 1, 0)


def test_an_nsqd_that_has_everything_on_its_disk_goes_from_store_to_store_and_back(thin: Thin) -> None:
    first, second = f"file://{thin.directory}/one", f"file://{thin.directory}/two"
    published = []

    def serve(*flags: str) -> str:
        nsqd = thin.nsqd("data", *flags, "--store-interval=50ms").start()
        nsqd.create("t", "c")
        published.append(b"%d" % len(published))
        nsqd.pub("t", published[-1])
        if flags:
            wait_until(lambda: is_stored(nsqd))
        nsqd.kill()
        return nsqd.log_text()

    assert "until now" not in serve(f"--store={first}")
    assert f"was in the store {first} until now; nsqd goes on in" in serve(f"--store={second}")
    assert f"was in the store {second} until now" in serve(f"--store={first}")
    assert f"was in the store {first} until now; without --store" in serve()
    assert "until now" not in serve(f"--store={first}")
    serve(f"--store={second}")
    for url in (second, first):
        restored = thin.nsqd(f"restored-{url[-3:]}", f"--store={url}", f"--restore-from={url}").start()
        count = len(published) if url == second else len(published) - 1
        assert sorted(consume_all(restored, "t", "c")) == published[:count]


def test_a_former_store_that_another_nsqd_has_written_since_is_refused(thin: Thin) -> None:
    mine, others = port_pairs(2)
    store = f"--store={thin.store}"
    nsqd = thin.nsqd("data", store, "--store-interval=50ms", ports=mine).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    wait_until(lambda: is_stored(nsqd))
    nsqd.kill()
    thin.nsqd("data", f"--store=file://{thin.directory}/two").start().kill()
    thin.nsqd("other", store, f"--restore-from={thin.store}", ports=others).start().kill()
    errors = thin.nsqd("data", store, ports=mine).fails_to_start()
    assert f"has the messages of 127.0.0.1:{others[0]} (epoch 2)" in errors
    errors = thin.nsqd("data", store, ports=others).fails_to_start()
    assert (
        f"has the messages of this nsqd itself, 127.0.0.1:{others[0]}, at an earlier time (epoch 2)" in errors
    )


# ---- a stopped data path


def test_what_only_the_store_has_is_not_missing_for_check_data(thin: Thin) -> None:
    nsqd = thin.start()
    count = COUNT + 1 - on_disk(nsqd)
    assert nsqd.stop() == 0
    check = f"--check-data={nsqd.data_path}"
    status, output, errors = run(check, f"--store={thin.store}")
    assert (status, errors) == (0, "")
    assert f"{count:,} only in the store" in output
    assert "\nall well\n" in output
    status, output, errors = run(check, f"--store={thin.store}", "--log-format=json")
    (topic,) = json.loads(output)["topics"]
    (channel,) = topic["channels"]
    assert (channel["queued"], channel["missing"], channel["stored"]) == (COUNT + 1 - count, 0, count)
    status, output, errors = run(check)
    assert (status, "is gone" in output) == (1, True)
    assert f"was in the store {thin.store}, which may have what is gone" in errors
    sorted(thin.directory.glob("store/files/t/*.log"))[0].unlink()
    status, output, errors = run(check, f"--store={thin.store}")
    assert (status, "is gone" in output, "is missing: it was deleted or lost" in output) == (1, True, True)


def test_an_export_to_go_of_a_thin_data_path_is_refused(thin: Thin) -> None:
    nsqd = thin.start()
    count = COUNT + 1 - on_disk(nsqd)
    assert nsqd.stop() == 0
    target = thin.directory / "go"
    status, output, errors = run(f"--data-path={nsqd.data_path}", f"--export-to-go={target}")
    assert (status, output, target.exists()) == (1, "", False)
    assert (
        f"lacks unfinished messages that are in the store {thin.store} ({count} messages of topic t)"
        in errors
    )
    whole = thin.directory / "whole"
    assert run(f"--restore-from={thin.store}", f"--data-path={whole}")[0] == 0
    status, output, errors = run(f"--data-path={whole}", f"--export-to-go={target}")
    assert (status, errors) == (0, "")
    assert f"1 topic, 1 channel, {COUNT + 1} messages" in output
