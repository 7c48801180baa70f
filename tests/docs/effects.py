"""What the blocks of a page have done, where their output alone does not show it. One function a page."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.docs.machine import Machine
from tests.docs.running import Page

Effect = Callable[[Page, Machine, Path], None]


def printed_by(machine: Machine, cwd: Path, line: str) -> str:
    """Return what a command prints there. Fails if it fails."""
    command = ["bash", "--norc", "-c", machine.text(line)]
    process = machine.popen(command, cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, f"{line}: status {process.returncode}"
    return output.decode()


def topic(machine: Machine, cwd: Path, name: str, address: str = "127.0.0.1") -> dict[str, Any]:
    """Return the topic in /stats."""
    text = printed_by(machine, cwd, f"curl 'http://{address}:4151/stats?format=json&topic={name}'")
    (found,) = json.loads(text)["topics"]
    return dict(found)


def manifest(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "_manifest.jsonl").read_text().splitlines()]


# ---- pages


def archived(page: Page, machine: Machine, cwd: Path) -> None:
    """The archive of the tour has all that was published."""
    assert "published 100,000 messages" in page.printed_by("to-nsq --topic=tour")
    files = manifest(cwd / "archive")
    assert sum(file["messages"] for file in files) == 100_000
    assert all((cwd / "archive" / file["path"]).stat().st_size >= file["bytes"] for file in files)


def readme(page: Page, machine: Machine, cwd: Path) -> None:
    """The counts of the tour agree."""
    archived(page, machine, cwd)
    assert re.search(r"^tour +100,000 ", page.printed_by("--dry-run"), re.MULTILINE)
    assert re.search(r"\| +tour\|[^|]+\| +100000\|", page.printed_by("NsqDataSource"))
    assert topic(machine, cwd, "tour_again")["message_count"] == 50_000
    take = "nsq-tail --topic=tour_again --nsqd-tcp-address=127.0.0.1:4150 --channel=count -n 50000 --pick=.number"
    assert sorted(map(int, printed_by(machine, cwd, take).split())) == list(range(2, 100_001, 2))


def client(page: Page, machine: Machine, cwd: Path) -> None:
    """All of orders.jsonl, and the four others, are stored once; one of them is not due yet."""
    counts = [topic(machine, cwd, "orders", address) for address in ("10.0.0.1", "10.0.0.2")]
    assert sum(count["message_count"] for count in counts) == 9
    bodies = [json.loads(line) for line in (cwd / "orders.archive").read_text().splitlines()]
    archived = [one for count in counts for one in count["channels"] if one["channel_name"] == "archive"]
    assert len(bodies) == sum(channel["message_count"] - channel["deferred_count"] for channel in archived)


def debugging(page: Page, machine: Machine, cwd: Path) -> None:
    assert (cwd / "profile.folded").exists()
    assert topic(machine, cwd, "orders", "10.0.0.1")["paused"] is True


def durability(page: Page, machine: Machine, cwd: Path) -> None:
    channels = {one["channel_name"]: one["depth"] for one in topic(machine, cwd, "orders", "nsq1")["channels"]}
    assert channels == {"billing": 1, "audit": 1}


def spark(page: Page, machine: Machine, cwd: Path) -> None:
    for block in "# hours.py", "spark-submit":
        hours = re.findall(r"\|(2023-11-14 \d\d:00:00)\| +(\d+)\|", page.printed_by(block))
        assert hours == [("2023-11-14 22:00:00", "47"), ("2023-11-14 23:00:00", "13")]
    assert topic(machine, cwd, "orders_again")["message_count"] == 16
    assert list(machine.path("/tables/orders").glob("*.parquet"))
    assert list(machine.path("/tables/live").glob("*.parquet"))


def spark_replay(page: Page, machine: Machine, cwd: Path) -> None:
    assert topic(machine, cwd, "orders_again")["message_count"] == 100
    assert topic(machine, cwd, "orders")["message_count"] == 50  # the failed ones
    assert topic(machine, cwd, "late")["message_count"] == 40
    assert (cwd / "replay.json").stat().st_size


def nsq_to_file(page: Page, machine: Machine, cwd: Path) -> None:
    finished = [file for name in ("/var/archive", "/mnt/archive") for file in manifest(machine.path(name))]
    assert all(file["messages"] for file in finished)
    formats = {(file["topic"], file["format"]) for file in finished}
    assert formats == {("orders", "lines"), ("audit_logins", "lines"), ("orders", "framed"), ("orders", "parquet")}


def to_nsq(page: Page, machine: Machine, cwd: Path) -> None:
    assert [topic(machine, cwd, "orders", address)["message_count"] for address in ("127.0.0.1", "10.0.0.1", "10.0.0.2")] == [
        3,
        3,
        3,
    ]
    assert topic(machine, cwd, "files")["message_count"] >= 3


EFFECTS: dict[str, Effect] = {
    "README.md": readme,
    "docs/client.md": client,
    "docs/debugging.md": debugging,
    "docs/durability.md": durability,
    "docs/spark.md": spark,
    "docs/tools/nsq-to-file.md": nsq_to_file,
    "docs/tools/spark-replay.md": spark_replay,
    "docs/tools/to-nsq.md": to_nsq,
}
