"""What makes shells complete flags: the scripts are run by the shells that are there."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from nsqd_py.settings.completion import completion_script
from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import BOOL, INT, STRING, choice


class General(Options, title="General"):
    order: int = setting(choice({"up": 1, "down": 2}, word="order"), 1, "Up [or] down: it's the user's choice.")
    work_dir: str = setting(STRING, "", "Where to work.")
    stable: bool = setting(BOOL, False, "Keep the order of equals.")
    limit: int = setting(INT, 0, "How many.")


class SorterOptions(ProgramOptions, General):
    pass


SORTER = Program("sorter", "sort-it", "Sort.", SorterOptions)

NEEDS = {
    shell: pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")
    for shell in ("bash", "zsh", "fish")
}


def complete_in_bash(*words: str) -> list[str]:
    """What bash offers for the last word; `=` is a word of its own, as readline splits them."""
    script = (
        completion_script(SORTER, "bash")
        + f"""
compopt() {{ :; }}
COMP_WORDS=(sort-it {" ".join(f"'{word}'" for word in words)})
COMP_CWORD={len(words)}
_sort_it
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=40, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@NEEDS["bash"]
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("--or",), ["--order="]),
        (("--st",), ["--stable"]),
        (("--order", "=", "d"), ["down"]),
        (("--order", "="), ["up", "down"]),
        (("--order", ""), ["up", "down"]),
    ],
)
def test_bash_offers_flags_and_their_choices(words: tuple[str, ...], offered: list[str]) -> None:
    assert complete_in_bash(*words) == offered


@NEEDS["bash"]
def test_bash_offers_all_flags() -> None:
    expected = {
        "--version",
        "--config=",
        "--completion=",
        "--check-config",
        "--print-config",
        "--order=",
        "--work-dir=",
        "--stable",
        "--limit=",
        "--help",
    }
    assert set(complete_in_bash("--")) == expected


@NEEDS["zsh"]
def test_zsh_takes_the_script() -> None:
    subprocess.run(["zsh", "-n"], input=completion_script(SORTER, "zsh"), text=True, timeout=40, check=True)


@NEEDS["fish"]
def test_fish_offers_flags_and_their_choices() -> None:
    script = completion_script(SORTER, "fish") + "\ncomplete -C 'sort-it --order '\n"
    done = subprocess.run(["fish", "--no-config"], input=script, capture_output=True, text=True, timeout=40, check=True)
    # With the help behind a tab, sometimes.
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["down", "up"]


def test_zsh_quotes_what_means_something_to_it() -> None:
    script = completion_script(SORTER, "zsh")
    assert script.startswith("#compdef sort-it\n")
    assert "'*--order=[Up \\[or\\] down\\: it'\\''s the user'\\''s choice.]:order:(up down)'" in script
    assert "'*--stable[Keep the order of equals.]'" in script
    assert "'*--work-dir=[Where to work.]:string:_files'" in script


def test_fish_quotes_what_means_something_to_it() -> None:
    script = completion_script(SORTER, "fish")
    assert "complete -c sort-it -l order -d 'Up [or] down: it\\'s the user\\'s choice.' -x -a 'up down'" in script
    assert "complete -c sort-it -l work-dir -d 'Where to work.' -r -F" in script
    assert "complete -c sort-it -l stable -d 'Keep the order of equals.'\n" in script


def test_every_program_prints_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        SORTER.read(["--completion", "bash"])
    assert done.value.code == 0
    assert capsys.readouterr().out == completion_script(SORTER, "bash")
