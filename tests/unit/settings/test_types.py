"""Sizes: a number of bytes, or a number with a unit, in flags and in config files."""

from pathlib import Path

import pytest

from nsqd_py.server.options import NSQD
from nsqd_py.settings.values import parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1000", 1000),
        ("64k", 64_000),
        ("10MB", 10_000_000),
        ("64KiB", 65_536),
        ("1GiB", 1 << 30),
        ("2Ti", 2 << 40),
    ],
)
def test_a_size(text: str, size_bytes: int, tmp_path: Path) -> None:
    assert parse_size(text) == size_bytes
    config = tmp_path / "nsqd.toml"
    config.write_text(f'max_body_size = "{text}"\nretention_bytes = "logs.*={text}"\n')
    options = NSQD.read([f"--config={config}", f"--max-msg-size={text}"])
    assert (options.max_msg_size, options.max_body_size) == (size_bytes, size_bytes)
    assert options.retention_bytes.of("logs.a") == size_bytes


@pytest.mark.parametrize("text", ["", "k", "1.5GB", "10 MB", "10XB", "10iB", "1kib2", "9" * 30, "9999999TiB"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="."):
        parse_size(text)
