"""Files that were saved on Windows may begin with a byte order mark, which is no part of their first line."""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path

import pytest

from nsqadmin_py.options import NSQADMIN
from nsqadmin_py.upstream import headers_for
from nsqd_py.net.http import parse_url
from nsqd_py.net.http.guard import read_credentials
from nsqd_py.server.options import NSQD
from nsqd_py.settings.flags import from_environment, read_config
from nsqd_py.settings.values import read_secret
from nsqd_py.standby.group import secrets

MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("name", "text"), [("nsqd.toml", b"node_id = 7\r\n"), ("nsqd.yaml", b"node_id: 7\r\n")]
)
def test_of_config_files(tmp_path: Path, name: str, text: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(MARK + text)
    assert read_config(str(path), NSQD.settings) == {"node_id": 7}


def test_of_files_with_secrets(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(MARK + b"https://user:password@host/\r\n")
    assert read_secret(f"@{path}") == "https://user:password@host/"
    assert (
        from_environment("nsqd", NSQD.settings, {"NSQD_LEASE_FILE": str(path)})["lease"]
        == "https://user:password@host/"
    )


def test_of_files_with_users_and_tokens(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(MARK + f"token:deploy:{sha256(b'a token').hexdigest()}\r\n".encode())
    assert read_credentials(str(path)).token_name(b"a token") == b"deploy"


def test_of_the_secret_of_a_group(tmp_path: Path) -> None:
    """With it, this nsqd would have another secret than the others of its group, whose files have none."""
    secret = base64.b64encode(bytes(32))
    path = tmp_path / "secret"
    path.write_bytes(MARK + secret + b"\r\n")
    path.chmod(0o600)
    assert secrets(NSQD.defaults(standby_secret_file=str(path))) == (secret,)


def test_of_the_token_of_nsqadmin(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(MARK + b"a-token\r\n")
    options = NSQADMIN.defaults(nsqd_http_address=("127.0.0.1:4151",), http_client_token_file=str(path))
    assert headers_for(options)(parse_url("http://127.0.0.1:4151/stats")) == {
        "Authorization": "Bearer a-token"
    }
