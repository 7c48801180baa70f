"""docs/options.md says what the declarations of the settings say."""

from pathlib import Path

from nsqd_py.options import NSQD
from nsqd_py.settings_docs import reference_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"
COMMAND = "python -m nsqd_py.settings_docs"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == reference_page(NSQD, COMMAND), f"run: {COMMAND} > docs/options.md"


def test_the_page_has_every_flag() -> None:
    page = PAGE.read_text("utf-8")
    assert [s.name for s in NSQD.settings if f"`{s.usage}`".replace("|", "\\|") not in page] == []


def test_the_page_is_the_same_on_every_machine() -> None:
    by_name = {setting.name: setting for setting in NSQD.settings}
    assert by_name["node-id"].default_text and by_name["broadcast-address"].default_text
