"""What a result stores."""

from __future__ import annotations

import pytest

pytest.importorskip("django")

from nsqd_py.django.results import error_of


def test_a_traceback_has_what_every_database_stores() -> None:
    """PostgreSQL refuses a NUL, and every database half a surrogate pair: the task seemed to run for ever."""
    error = error_of(ValueError("höh \x00\ud800\x1b"))
    assert error.exception_class_path == "builtins.ValueError"
    assert error.traceback == "ValueError: höh \\x00\\ud800\x1b\n"
