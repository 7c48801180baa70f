import json
from pathlib import Path

from bench import compare, page, record
from bench.duel import SUBJECT, Result
from bench.machine import Machine
from bench.run import Amount, Run
from bench.scenario import Scenario, Side
from tests.unit.bench.records import MACHINE


def result(values: list[float], others: list[float]) -> Result:
    side = Side(Amount(1, 1))
    measured = Result(Scenario("publish", "msg/s", side, side, name="16 B", section="size", place=16))
    for role, some in ((SUBJECT, values), ("Redis", others)):
        measured.runs[role] = [Run(value, 10, 1.0, 0.5, 0.123456789, 0.0, {"p99_ms": value}) for value in some]
        measured.versions[role], measured.commands[role] = "7.0", ("/usr/bin/redis-server",)
    return measured


def test_what_is_written_is_read_with_its_ratios(tmp_path: Path) -> None:
    written = record.Record(Machine(**MACHINE), "abc1234", "full", "python -m bench", tmp_path)
    written.write([result([30.0, 20.0], [10.0, 20.0])])
    content = record.read(written.path)
    (entry,) = content["results"]
    assert entry["ratios"] == {"Redis": [3.0, 1.0]} and entry["median_ratios"] == {"Redis": 2.0}
    assert [run["value"] for run in entry["runs"][SUBJECT]] == [30.0, 20.0]
    assert entry["runs"][SUBJECT][1]["details"] == {"p99_ms": 20.0}
    assert entry["runs"]["Redis"][0]["server_cpu_s"] == 0.12346  # five digits are kept
    assert entry["commands"]["Redis"] == "redis-server"
    assert content["minutes"] == 0
    assert page.newest_rows([(written.path, content)])["size", "16 B"].median(SUBJECT) == 25


def test_each_write_replaces_the_last_and_no_other_record(tmp_path: Path) -> None:
    """A run writes after each row, so that an interruption keeps what was finished."""
    first = record.Record(Machine(**MACHINE), "abc1234", "full", "", tmp_path)
    first.write([result([1.0], [1.0])])
    second = record.Record(Machine(**MACHINE), "abc1234", "full", "", tmp_path)
    second.write([result([2.0], [1.0])])
    second.write([result([2.0], [1.0]), result([3.0], [1.0])])
    assert sorted(tmp_path.iterdir()) == sorted([first.path, second.path])
    assert [len(record.read(one.path)["results"]) for one in (first, second)] == [1, 2]


def test_a_record_has_a_line_for_each_row(tmp_path: Path) -> None:
    written = record.Record(Machine(**MACHINE), "abc1234", "full", "", tmp_path)
    written.write([result([1.0], [1.0])])
    before = len(written.path.read_text().splitlines())
    written.write([result([1.0], [1.0])] * 5)
    assert len(written.path.read_text().splitlines()) == before + 4


def test_a_record_from_before_there_were_kinds_is_read_as_a_full_one(tmp_path: Path) -> None:
    runs = {"subject": [{"value": 3.0}, {"value": 2.8}], "peer": [{"value": 2.0}, {"value": 2.0}]}
    old = {"scenario": "mpub", "unit": "msg/s", "lower_is_better": False, "failure": None, "runs": runs}
    path = tmp_path / "2026-01-02-abc1234.json"
    path.write_text(json.dumps({"date": "2026-01-02", "commit": "abc1234", "machine": MACHINE, "results": [old]}))
    ((_, content),) = record.read_all(tmp_path)
    assert content["kind"] == "full"
    assert str(compare.rows(content)["nsqd", "mpub", "peer"]) == "1.45 (1.40–1.50)"


def test_records_are_read_with_the_newest_first(tmp_path: Path) -> None:
    for name, at in (("a", "2026-01-02T10:00:00+00:00"), ("b", "2026-01-02T11:00:00+00:00")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"kind": "full", "recorded_at": at, "results": []}))
    (tmp_path / "another-measurement.json").write_text("{}")
    assert [path.stem for path, _ in record.read_all(tmp_path)] == ["b", "a"]


def test_every_record_of_the_project_can_be_read() -> None:
    for path, content in record.read_all():
        assert compare.rows(content) or content["results"], path
