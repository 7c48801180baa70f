"""What a shell offers after Tab."""

from __future__ import annotations

import pytest

from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.kinds import choice
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import BOOL, INT, STRING


class General(Options, title="General"):
    order: int = setting(choice({"up": 1, "down": 2}, word="order"), 1, "Up [or] down.")
    work_dir: str = setting(STRING, "", "Where to work.")
    stable: bool = setting(BOOL, False, "Keep the order of equals.")
    limit: int = setting(INT, 0, "How many.")


class SorterOptions(ProgramOptions, General):
    pass


SORTER = Program("sorter", "sort-it", "Sort.", SorterOptions)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("--or", ["--order"]),
        ("--st", ["--stable"]),
        (
            "--",
            ["--version", "--config", "--completion", "--check-config", "--print-config"]
            + ["--order", "--work-dir", "--stable", "--limit", "--help"],
        ),
        ("--order=d", ["down"]),
        ("-order=1 --order ", ["up", "down"]),
        ("--stable --work-dir x", ["x"]),
    ],
)
def test_a_shell_offers_flags_their_words_and_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, offered: list[str]
) -> None:
    monkeypatch.setenv("_SORT_IT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"sort-it {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(f"sort-it {words}".split(" ")) - 1))
    with pytest.raises(SystemExit) as end:
        SORTER.read([])
    assert end.value.code == 0
    assert [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()] == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_program_prints_the_script_of_click(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    with pytest.raises(SystemExit) as end:
        SORTER.read(["--completion", shell])
    assert end.value.code == 0
    assert f"_SORT_IT_COMPLETE={shell}_complete" in capsys.readouterr().out
