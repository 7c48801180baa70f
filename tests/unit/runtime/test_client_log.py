"""Log lines that clients can cause: a burst of each text, then one a second, and a count of the others."""

from __future__ import annotations

from collections.abc import Callable

from nsqd_py.runtime.logs import CLIENT_BURST, ERROR, INFO, MAX_CLIENT_CHARACTERS, ClientLines, Lines


class Written(Lines):
    """Lines, and a clock that the test sets."""

    def __init__(self) -> None:
        super().__init__(INFO)
        self.now_s = 100.0
        self.texts: list[str] = []
        self.lines = ClientLines(self, lambda: self.now_s)

    def _write(self, level: int, text: str, args: tuple[object, ...], trace: Callable[[], str] = str) -> None:
        self.texts.append(text + trace())


def test_a_burst_is_written_as_it_comes() -> None:
    written = Written()
    for number in range(CLIENT_BURST):
        written.lines.info("client(%d) is here", number)
    assert written.texts == [f"client({number}) is here" for number in range(CLIENT_BURST)]


def test_after_a_burst_one_line_a_second_says_how_many_were_left_out() -> None:
    written = Written()
    for second in range(5):
        written.now_s = 100.0 + second
        for number in range(1_000):
            written.lines.error("client(%d) is wrong", number)
    assert (
        written.texts[CLIENT_BURST:]
        == [f"client(0) is wrong ({1_000 - CLIENT_BURST} more like this were left out)"]
        + ["client(0) is wrong (999 more like this were left out)"] * 3
    )
    written.now_s += CLIENT_BURST
    for _ in range(2 * CLIENT_BURST):
        written.lines.error("client(%d) is wrong", 0)
    assert len(written.texts) == 2 * CLIENT_BURST + 4, "a burst again"


def test_a_line_that_is_left_out_has_no_traceback() -> None:
    written = Written()
    for _ in range(2 * CLIENT_BURST):
        try:
            raise ValueError("bug")
        except ValueError as error:
            written.lines.exception("panic - %r", error)
    assert [text.count("Traceback") for text in written.texts] == [1] * CLIENT_BURST


def test_a_flood_of_one_kind_hides_no_other() -> None:
    written = Written()
    for _ in range(CLIENT_BURST * 2):
        written.lines.info("one")
    written.lines.info("another")
    assert written.texts[-1] == "another"


def test_what_is_below_the_level_is_neither_written_nor_counted() -> None:
    written = Written()
    written.level = ERROR
    for _ in range(CLIENT_BURST * 2):
        written.lines.info("one")
    written.level = INFO
    written.lines.info("one")
    assert written.texts == ["one"]


def test_a_line_is_one_line_of_bounded_length() -> None:
    written = Written()
    written.lines.info("client %s", "a\nb\r" + "x" * 100_000)
    (text,) = written.texts
    assert text.startswith(r"client a\nb\rxxx")
    assert len(text) <= MAX_CLIENT_CHARACTERS + 3
