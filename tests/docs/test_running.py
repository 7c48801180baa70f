"""A page that is wrong fails, and the failure names the line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import read_page
from tests.docs.machine import SharedMachine
from tests.docs.running import Page
from tests.docs.shell import Failed


def run(directory: Path, *blocks: str, deadline_s: float = 20.0) -> Page:
    """Run a page of these blocks."""
    (directory / "page.md").write_text("\n".join(blocks))
    (directory / "home").mkdir()
    machine = SharedMachine(directory / "machine")
    try:
        with Page(machine, read_page(directory, "page.md"), directory / "home", deadline_s) as page:
            page.run()
        return page
    finally:
        machine.close()


def sh(code: str, comment: str = "") -> str:
    return f"{comment}\n```sh\n{code}\n```\n"


def python(code: str, comment: str = "") -> str:
    return f"{comment}\n```python\n{code}\n```\n"


def test_blocks_share_a_shell_and_a_directory(tmp_path: Path) -> None:
    page = run(tmp_path, sh("mkdir a; cd a; name=x"), sh("echo $name $(basename $PWD)"))
    assert page.output == "x a\n"


def test_python_is_run_from_a_file_of_the_name_it_has(tmp_path: Path) -> None:
    page = run(tmp_path, python("# hours.py\nprint('from', __file__)"))
    assert re.fullmatch(r"from \S*hours.py\n", page.output)


@pytest.mark.parametrize("code", ["false; true", "ls /nowhere | cat", "curl -X POST http://127.0.0.1:9/; true"])
def test_a_command_that_fails_in_the_middle(tmp_path: Path, code: str) -> None:
    with pytest.raises(Failed, match=r"page\.md:3: status"):
        run(tmp_path, sh(code))


def test_python_that_fails(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="NameError"):
        run(tmp_path, python("not_yet()"))


def test_another_output_than_the_page_shows(tmp_path: Path) -> None:
    shown = "<!-- output -->\n```text\ntwo\n```\n"
    run(tmp_path, sh("echo two"), shown)
    with pytest.raises(Failed, match=r"page\.md:8: the page shows\ntwo"):
        run(tmp_path / "home", sh("echo three"), shown)


def test_until_then_ctrl_c(tmp_path: Path) -> None:
    code = "trap 'echo stopped; exit 0' INT\necho begun; while true; do sleep 0.05; done"
    page = run(tmp_path, sh(f'bash -c "{code}"', '<!-- run: until="begun" -->'))
    assert page.output == "begun\nstopped\n"


def test_until_something_that_does_not_happen(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"waited 0\.5 s for \{'until': 'never'\}"):
        run(tmp_path, sh("sleep 1000", '<!-- run: until="never" -->'), deadline_s=0.5)


def test_a_program_that_ends_before(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="it ended before"):
        run(tmp_path, python("# A consumer that nobody starts.", '<!-- run: until="handled" -->'))


def test_keys_are_typed_on_a_terminal(tmp_path: Path) -> None:
    page = run(tmp_path, sh('read -p "sure? " answer; echo "said $answer"', '<!-- run: until="sure" then="y\\n" -->'))
    assert "said y" in page.output


def test_a_block_is_repeated_until_it_shows_in_the_one_before(tmp_path: Path) -> None:
    run(tmp_path, sh("tail -F log", '<!-- run: repeat-next until="x" -->'), sh("echo x >> log"), sh("test -s log"))


def test_a_block_in_the_background_runs_until_the_end_of_the_page(tmp_path: Path) -> None:
    begin = "while true; do date > alive; sleep 0.05; done"
    run(
        tmp_path,
        sh(begin, '<!-- run: background until-command="test -e alive" -->'),
        sh("rm alive; until test -s alive; do sleep 0.05; done"),
    )


def test_lines_of_a_file(tmp_path: Path) -> None:
    line = "def test_lines_of_a_{}(tmp_path: Path) -> None:"
    quoted = f"<!-- from: tests/docs/test_running.py -->\n```python\n{line}\n```\n"
    run(tmp_path, quoted.format("file"))
    with pytest.raises(Failed, match="not to be found in tests/docs/test_running.py"):
        run(tmp_path / "home", quoted.format("planet"))
