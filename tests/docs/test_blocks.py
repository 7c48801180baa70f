"""Reading the blocks of a page, and comparing what it shows with what was printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import BadPage, Block, read_page
from tests.docs.output import same_output


def blocks_of(directory: Path, text: str) -> list[Block]:
    (directory / "page.md").write_text(text)
    return read_page(directory, "page.md")


def test_a_block_without_a_comment_is_run_to_its_end(tmp_path: Path) -> None:
    (block,) = blocks_of(tmp_path, "# A page\n\n```sh\nls\n\nls -l\n```\n")
    assert (block.kind, block.language, block.code, block.words) == ("run", "sh", "ls\n\nls -l\n", {})
    assert block.place == "page.md:4"


def test_a_block_in_a_list(tmp_path: Path) -> None:
    (block,) = blocks_of(tmp_path, '1. Do it:\n\n   <!-- run: until="x" -->\n   ```sh\n   one \\\n       two\n   ```\n')
    assert (block.code, block.words) == ("one \\\n    two\n", {"until": "x"})


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        (r'until="\[y/N\]" then="y\n"', {"until": r"\[y/N\]", "then": "y\n"}),
        ("until-command=\"grep 'a b' c\" background", {"until-command": "grep 'a b' c", "background": ""}),
        ('repeat-next until="^0$"', {"repeat-next": "", "until": "^0$"}),
    ],
)
def test_the_words_of_a_comment(tmp_path: Path, comment: str, words: dict[str, str]) -> None:
    (block,) = blocks_of(tmp_path, f"<!-- run: {comment} -->\n```sh\nls\n```\n")
    assert block.words == words


@pytest.mark.parametrize(
    ("comment", "kind", "text"),
    [
        ("not run: needs root", "not run", "needs root"),
        ("output", "output", ""),
        ("from: tests/unit/queue/test_in_flight.py", "from", "tests/unit/queue/test_in_flight.py"),
    ],
)
def test_blocks_that_are_not_run(tmp_path: Path, comment: str, kind: str, text: str) -> None:
    (block,) = blocks_of(tmp_path, f"<!-- {comment} -->\n```text\nls\n```\n")
    assert (block.kind, block.text) == (kind, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```\nls\n```\n", "a block of no language"),
        ("```json\n{}\n```\n", "a block of json"),
        ("```sh\nls\n", "has no end"),
        ("Run this:\n\n    ls\n", "an indented block"),
        ("<!-- not run -->\n```sh\nls\n```\n", "`not run` says nothing"),
        ("<!-- output: of ls -->\n```text\nls\n```\n", "`output` says too much"),
        ("<!-- skip this -->\n```sh\nls\n```\n", "the comment is not understood"),
        ("<!-- run: forever -->\n```sh\nls\n```\n", "not understood: run: forever"),
        ("<!-- run: background -->\n```sh\nls\n```\n", "needs until or until-command"),
        ('<!-- run: until="x" -->\n```text\nls\n```\n', "only blocks of sh and python"),
    ],
)
def test_what_nobody_understands_is_an_error(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadPage, match=why):
        blocks_of(tmp_path, text)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\nb\n", "a  \nb\n\n"),
        ("a\n...\nd\n", "a\nb\nc\nd\n"),
        ("a\n...\nd\n", "a\nd\n"),
        ("a\n...\n", "a\n"),
        ("a … d\n", "a b c d\n"),
        ("at 2026-11-21T03:38:12.123456+00:00\n", "at 2027-01-02T03:04:05.000001+00:00\n"),
        ("go-nsqd-20261121T134440Z, 12.5 KB", "go-nsqd-20270101T000000Z, 4 MB"),
    ],
)
def test_the_same_output(shown: str, printed: str) -> None:
    assert same_output(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("a\nb\n", "a\n"), ("a\n", "a\nb\n"), ("a\n...\nd\n", "a\nb\n"), ("100 messages", "101 messages"), ("a.c", "abc")],
)
def test_another_output(shown: str, printed: str) -> None:
    assert not same_output(shown, printed)
