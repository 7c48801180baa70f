"""nsq-cat on the store that a running nsqd writes, that a killed one has left, and on a backup."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from nsqd_py.objects.opening import open_objects
from nsqd_py.store.contents import topics_of
from nsqd_py.store.image import StoreReader
from tests.support.nsqd_process import MakeNsqd, NsqdProcess
from tests.support.tool_process import run_tool
from tests.support.wire import mpub_body

pytestmark = [pytest.mark.ours]


def publish(nsqd: NsqdProcess, numbers: range, topic: str = "orders") -> None:
    for first in range(numbers.start, numbers.stop, 10):
        some = [b"%0100d" % number for number in range(first, min(first + 10, numbers.stop))]
        assert nsqd.post(f"/mpub?topic={topic}&binary=true", mpub_body(some)).body == b"OK"


def cat(*flags: str | Path) -> list[int]:
    done = run_tool("nsq_apps", "nsq_cat", *map(str, flags))
    assert (done.returncode, done.stderr) == (0, "")
    return list(map(int, done.stdout.split()))


def test_what_was_acknowledged_is_there_while_nsqd_runs_and_when_it_is_gone(
    make_nsqd: MakeNsqd, tmp_path: Path
) -> None:
    url = (tmp_path / "store").as_uri()
    nsqd = make_nsqd(f"--store={url}", "--store-acks=1", "--store-interval=50ms", "--max-bytes-per-file=8192")
    acknowledged = 0

    def go_on() -> None:
        nonlocal acknowledged
        for first in range(0, 600, 10):
            publish(nsqd, range(first, first + 10))
            acknowledged = first + 10

    publisher = Thread(target=go_on)
    publisher.start()
    while publisher.is_alive():
        before = acknowledged
        found = cat("--topic=orders", url) if before else []
        assert found == list(range(len(found)))
        assert len(found) >= before
    publisher.join()
    assert acknowledged == 600
    nsqd.create("orders", "c")
    publish(nsqd, range(5), "clicks")
    nsqd.kill()
    reader = StoreReader(open_objects(url))
    reader.refresh()
    assert topics_of(reader.image) == ["clicks", "orders"]
    assert cat(tmp_path / "store") == [*range(5), *range(600)]
