import json
from pathlib import Path

from bench import compare, record
from tests.unit.bench.records import MACHINE


def test_a_record_from_before_there_were_kinds_is_read_as_a_full_one(tmp_path: Path) -> None:
    old = {
        "scenario": "mpub", "unit": "msg/s", "ratios": [1.5, 1.4, 1.6], "median_ratio": 1.5, "failure": None,
        "runs": {"subject": [], "peer": []},
    }  # fmt: skip
    path = tmp_path / "2026-01-02-abc1234.json"
    path.write_text(json.dumps({"date": "2026-01-02", "commit": "abc1234", "machine": MACHINE, "results": [old]}))
    ((_, content),) = record.read_all(tmp_path)
    assert content["kind"] == "full"
    assert str(compare.rows(content)["nsqd", "mpub", "peer"]) == "1.50 (1.40–1.60)"


def test_records_are_read_with_the_newest_first(tmp_path: Path) -> None:
    for name, at in (("a", "2026-01-02T10:00:00+00:00"), ("b", "2026-01-02T11:00:00+00:00")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"kind": "full", "recorded_at": at, "results": []}))
    (tmp_path / "another-measurement.json").write_text("{}")
    assert [path.stem for path, _ in record.read_all(tmp_path)] == ["b", "a"]


def test_every_record_of_the_project_can_be_read() -> None:
    for path, content in record.read_all():
        assert compare.rows(content) or content["results"], path
