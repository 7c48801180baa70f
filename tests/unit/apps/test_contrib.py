"""`python -m nsq_apps.contrib` in a checkout; tests/packaging runs it after an installation."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from nsq_apps import contrib, nsqadmin, nsqd, nsqlookupd
from tests.support.nsqd_process import REPOSITORY


def test_it_lists_every_file_with_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert contrib.main([]) == 0
    assert str(REPOSITORY / "contrib/systemd/nsqd.socket") in capsys.readouterr().out.splitlines()


def test_it_prints_the_files_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert contrib.main(["systemd/nsqd.service", "systemd/nsqd.socket"]) == 0
    folder = REPOSITORY / "contrib/systemd"
    assert (
        capsys.readouterr().out
        == (folder / "nsqd.service").read_text() + (folder / "nsqd.socket").read_text()
    )


@pytest.mark.parametrize("main", [nsqadmin.main, nsqd.main, nsqlookupd.main])
def test_the_command_for_the_config_file_of_a_unit(main: Callable[[list[str]], int]) -> None:
    name = main.__module__.rpartition(".")[2]
    unit = (REPOSITORY / "contrib/systemd" / f"{name}.service").read_text()
    (flags,) = re.findall(rf"{name}-py (--.*) > /etc/nsq", unit)
    assert main(flags.split()) == 0


@pytest.mark.parametrize("name", ["nsqd.service", "../README.md", "/etc/passwd"])
def test_it_names_the_choices_for_an_unknown_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert contrib.main([name]) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    assert reported.err.startswith(f"{name}: no such file; choose from grafana/")
