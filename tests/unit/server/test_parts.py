"""The tables of parts: what they name is there, and what asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.broker.state_files import BACKUP_FILE, STANDBY_FILE
from nsqd_py.errors import StartError
from nsqd_py.server import parts
from nsqd_py.server.docking import Feature, Part
from nsqd_py.server.options import read_options

TABLES = (parts.COMMANDS, parts.CHECKS, parts.REFUSALS, parts.RUNNERS, parts.PARTS)


@pytest.mark.parametrize("feature", [each for table in TABLES for each in table], ids=lambda each: each.path)
def test_what_a_table_names_is_there(feature: Feature) -> None:
    assert callable(feature.load())
    assert (feature in parts.PARTS) == (isinstance(feature.load(), type) and issubclass(feature.load(), Part))


def needed(*argv: str) -> set[str]:
    """The names in the tables that these flags ask for."""
    options = read_options(argv)
    directory = Path(options.data_path)
    return {
        feature.path.partition(":")[2]
        for table in TABLES
        for feature in table
        if feature.is_needed(options, directory)
    }


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ((), set()),
        (("--check-data=d",), {"check_data"}),
        (("--export-to-go=d",), {"export_to_go"}),
        (("--restore-from=d",), {"run"}),
        (("--backup-to=d", "--standby-of=b:1"), {"run", "check_group", "StandbyPart"}),
        (("--accept-standbys",), {"check_group", "StandbyPart"}),
        (("--standby-acks=1",), {"check_group", "StandbyPart"}),
        (("--promote",), {"StandbyPart"}),
        (("--standby-secret-file=f",), {"check_group"}),
        (("--lease=etcd://b:1/x",), {"check_group", "serve_by_lease", "StandbyPart", "LeasePart"}),
    ],
)
def test_what_flags_ask_for(flags: tuple[str, ...], names: set[str], tmp_path: Path) -> None:
    assert needed(f"--data-path={tmp_path}", *flags) == names


@pytest.mark.parametrize(
    ("name", "names"),
    [
        (STANDBY_FILE, {"StandbyPart"}),
        (BACKUP_FILE, {"refuse"}),
        ("t.diskqueue.meta.dat", {"GoImport"}),
        ("import", {"GoImport"}),
        ("t.000000000000000000000.log", set()),
    ],
)
def test_what_files_ask_for(name: str, names: set[str], tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert needed(f"--data-path={tmp_path}") == names


def test_a_backup_is_refused_before_nsqd_serves(tmp_path: Path) -> None:
    options = read_options([f"--data-path={tmp_path}"])
    parts.check_data_path(options)
    (tmp_path / BACKUP_FILE).touch()
    with pytest.raises(
        StartError, match=f"^{tmp_path} is a backup, or was not restored completely: restore it"
    ):
        parts.check_data_path(options)


def test_a_part_does_nothing_by_default() -> None:
    class Nothing:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(name)

    part = Part(Nothing())  # type: ignore[arg-type]
    moments = [name for name in vars(Part) if not name.startswith("_")]
    assert moments == [
        "take_role",
        "before_load",
        "loaded",
        "start",
        "serving",
        "started",
        "leave_role",
        "stop",
        "last_readers",
        "answered",
        "closed",
    ]
    answers = {moment: getattr(part, moment)() for moment in moments}
    assert answers.pop("last_readers") == set()
    assert [*answers.values()] == [None] * len(answers)
