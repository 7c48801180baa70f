"""docs/client.md names what the client has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nsqd_py.client.options import option_names

TEXT = (Path(__file__).resolve().parents[3] / "docs/client.md").read_text("utf-8")
SETTINGS = re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")))


@pytest.mark.parametrize("name", sorted(option_names()))
def test_every_setting_is_in_the_table(name: str) -> None:
    assert name in SETTINGS


def test_the_table_has_no_others() -> None:
    assert set(SETTINGS) == set(option_names())
