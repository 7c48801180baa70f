from bench.plan import in_passes


class Row:
    """Takes as long as it says, by a clock that only it moves."""

    def __init__(self, name: str, rounds: int, round_s: float) -> None:
        self.name = name
        self.rounds = rounds
        self.last_round_s = round_s

    @property
    def is_over(self) -> bool:
        return self.rounds <= 0


def order(rows: list[Row], minutes_s: float) -> list[str]:
    ran: list[Row] = []
    for row in in_passes(rows, lambda: minutes_s - sum(row.last_round_s for row in ran)):
        ran.append(row)
        row.rounds -= 1
    return [row.name for row in ran]


def test_each_row_has_a_round_before_any_has_two() -> None:
    rows = [Row("a", 3, 1), Row("b", 1, 1), Row("c", 2, 1)]
    assert order(rows, 100) == ["a", "b", "c", "a", "c", "a"]


def test_every_row_has_a_round_even_without_time() -> None:
    assert order([Row("a", 3, 10), Row("b", 3, 10)], 5) == ["a", "b"]


def test_a_row_that_does_not_fit_into_the_time_left_is_passed_over_and_shorter_ones_are_not() -> None:
    assert order([Row("long", 3, 10), Row("short", 3, 2)], 17) == ["long", "short", "short", "short"]


def test_a_row_that_failed_is_not_run_again() -> None:
    rows = [Row("a", 2, 1), Row("failed", 0, 1)]
    assert order(rows, 100) == ["a", "failed", "a"]
