"""The group of an nsqd: the file of its secret, and the flags with which nsqd starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.server.options import read_options
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.standby.group import check_group, secrets

LOCAL = ("--tcp-address=127.0.0.1:4150", "--http-address=[::1]:4151", "--broadcast-address=localhost")
NAMES = "--standby-tls-allowed-names=b"
CERTIFICATES = (
    "--tls-cert=c",
    "--tls-key=k",
    "--tls-root-ca-file=r",
    "--standby-tls",
    "--standby-tls-cert=c",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"x" * 16 + b"\n")
    (tmp_path / "secret").chmod(0o600)
    return tmp_path / "secret"


@pytest.mark.parametrize(
    "flag",
    ["--accept-standbys", "--standby-acks=1", "--standby-of=127.0.0.1:1", "--lease=etcd://127.0.0.1:1/x"],
)
def test_without_a_secret_all_addresses_must_be_loopback(flag: str, path: Path) -> None:
    assert check_group(read_options([flag, *LOCAL])).startswith(f"STANDBY: {flag.partition('=')[0]} without")
    assert check_group(read_options([flag, f"--standby-secret-file={path}"])) == ""
    for other in (
        "tcp-address=0.0.0.0:1",
        "http-address=:1",
        "broadcast-address=b",
        "tcp-address=127.0.0.1.nip.io:1",
    ):
        with pytest.raises(BadOptions, match=f"^{flag.partition('=')[0]} needs --standby-secret-file or"):
            check_group(read_options([flag, *LOCAL, f"--{other}"]))


@pytest.mark.parametrize(
    "flag", ["--standby-of=b:1", "--lease=etcd://127.0.0.1:1,b:1/x", "--standby-of=[::2]:1"]
)
def test_the_others_must_be_loopback_too(flag: str) -> None:
    with pytest.raises(BadOptions, match="is no loopback address"):
        check_group(read_options([flag, *LOCAL]))


def test_unix_sockets_and_no_standbys_at_all() -> None:
    assert check_group(read_options([])) == ""
    sockets = ("--tcp-address=/run/a", "--http-address=/run/b")
    assert "without" in check_group(read_options(["--accept-standbys", *sockets]))


@pytest.mark.parametrize("policy", ["", "require"])
def test_names_need_certificates_on_both_sides(policy: str) -> None:
    """Of clients too, and they must be verified."""
    with pytest.raises(BadOptions, match="needs --tls-cert, --tls-root-ca-file, --tls-client-auth-pol"):
        check_group(read_options(["--accept-standbys", NAMES]))
    with pytest.raises(BadOptions, match="needs --tls-client-auth-policy=require-verify:"):
        check_group(read_options([NAMES, *CERTIFICATES, f"--tls-client-auth-policy={policy}"]))
    verified = [NAMES, *CERTIFICATES, "--tls-client-auth-policy=require-verify", "--accept-standbys"]
    assert check_group(read_options(verified)) == ""
    for flag in ("--standby-tls-insecure-skip-verify", "--client-tls-insecure-skip-verify"):
        with pytest.raises(BadOptions, match=f"excludes {flag}$"):
            check_group(read_options([*verified, flag]))
    shared = [flag.replace("--standby-tls-cert", "--client-tls-cert") for flag in verified]
    assert check_group(read_options(shared)) == ""
    with pytest.raises(BadOptions, match="needs --client-tls-cert: both sides"):
        check_group(read_options([flag for flag in shared if flag != "--client-tls-cert=c"]))


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        (b"", 0o600, "is empty; make a secret: openssl rand -base64 32 > "),
        (b" \n\n", 0o600, "is empty"),
        (b"y" * 16 + b"\nshort\n", 0o600, "a line of .* has fewer than 16 bytes"),
        (b"y" * 16, 0o604, r"other users may use .* \(mode 0604\); run: chmod 640 "),
        (b"y" * 16, 0o660, "chmod 640"),
        (b"y" * 70_000, 0o600, "must be a file of at most 65536 bytes"),
        (None, 0o600, "cannot read .*: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used(path: Path, content: bytes | None, mode: int, complaint: str) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(BadOptions, match=f"^--standby-secret-file: .*{complaint}") as error:
        check_group(read_options([f"--standby-secret-file={path}"]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o640])
def test_a_file_of_a_container_and_its_lines(path: Path, mode: int) -> None:
    path.write_bytes(b"  first of the secrets \r\n\nsecond of the secrets")
    path.chmod(mode)
    options = read_options([f"--standby-secret-file={path}"])
    assert secrets(options) == (b"first of the secrets", b"second of the secrets")
