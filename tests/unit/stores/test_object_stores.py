"""Object stores: whose settings count, and buckets that are not there. Reading and writing use the same client."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyarrow import fs

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.splits import ArchiveError
from nsq_spark.archive.storage import Storage
from nsq_tools.to_file.destinations import check_store, check_table, upload
from nsqd_py.stores.object_stores import (
    azure_arguments,
    delta_options,
    iceberg_properties,
    open_store,
    s3_arguments,
)
from tests.support.s3 import make_bucket

ABFSS = "abfss://events@company.dfs.core.windows.net"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket. AWS_ALLOW_HTTP is not set: an endpoint that begins with http:// says it."""
    for name, value in ("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("ENDPOINT_URL", endpoint):
        monkeypatch.setenv(f"AWS_{name}", value)
    return make_bucket(endpoint)


# ---- S3


def test_settings_of_s3() -> None:
    options = {
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "eu-1",
    }
    assert s3_arguments(options) == {
        "access_key": "key",
        "secret_key": "secret",
        "region": "eu-1",
        "endpoint_override": "127.0.0.1:9000",
        "scheme": "http",
        "force_virtual_addressing": False,
    }
    insecure = {"fs.s3a.endpoint": "minio", "fs.s3a.connection.ssl.enabled": "false"}
    assert s3_arguments(insecure)["scheme"] == "http"
    assert s3_arguments({}) == {}
    anonymous = {
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    }
    assert s3_arguments(anonymous) == {"anonymous": True}
    fs.S3FileSystem(
        **s3_arguments({**options, **anonymous, "fs.s3a.access.key": "", "fs.s3a.secret.key": ""})
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"AWS_ENDPOINT_URL": "http://a:1/"}, "http://a:1"),
        ({"AWS_ENDPOINT_URL": "http://a:1", "AWS_ENDPOINT_URL_S3": "https://b"}, "https://b"),
        ({"AWS_ENDPOINT": "http://c:1"}, "http://c:1"),
    ],
)
def test_an_endpoint_of_the_environment(
    given: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    arguments = s3_arguments({}, "bucket")
    assert f"{arguments['scheme']}://{arguments['endpoint_override']}" == expected
    assert delta_options("s3://bucket/x")["aws_endpoint"] == expected
    assert iceberg_properties("s3://bucket/x")["s3.endpoint"] == expected
    assert s3_arguments({"fs.s3a.endpoint": "https://mine"}, "bucket")["endpoint_override"] == "mine", (
        "a setting comes first"
    )


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_a_region_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "eu-7")
    assert s3_arguments({}, "bucket") == {"region": "eu-7"}
    assert delta_options("s3://bucket/x") == {"aws_region": "eu-7"}
    assert iceberg_properties("s3://bucket/x") == {"s3.region": "eu-7"}
    assert s3_arguments({"fs.s3a.endpoint.region": "eu-1"}, "bucket") == {"region": "eu-1"}


def test_settings_for_tables() -> None:
    settings = {
        "access.key": "key",
        "secret.key": "secret",
        "session.token": "token",
        "endpoint": "http://a:1",
    }
    options = delta_options("s3a://bucket/x", {f"fs.s3a.{name}": value for name, value in settings.items()})
    assert options == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_endpoint": "http://a:1",
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }
    assert delta_options("/archive") == iceberg_properties("/archive") == {}


def test_reading_and_writing_with_the_variables_alone(bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/archive"
    (tmp_path / "a.log").write_bytes(b"1\n")
    check_store(url)
    upload(tmp_path / "a.log", url, "day/a b.log")
    check_table("delta", url)
    for scheme in "s3", "s3a":
        path = url.replace("s3:", f"{scheme}:")
        assert [info.path for info in list_files([path], Storage())] == [f"{path}/day/a b.log"]


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    for path in "gone", "gone/archive", "gone/archive/a.log":
        with pytest.raises(OSError, match=f"s3://{path}: there is no bucket gone"):
            check_store(f"s3://{path}")
    for path in "gone", "gone/archive", "gone/*.log", "gone/archive/**":
        with pytest.raises(ArchiveError, match="there is no bucket gone"):
            list_files([f"s3a://{path}"], Storage())
    check_store(f"{bucket}/not/yet")
    with pytest.raises(ArchiveError, match="not/yet is not there"):
        list_files([f"{bucket}/not/yet"], Storage())


# ---- Azure


def test_a_container_is_the_beginning_of_the_path() -> None:
    store = open_store(ABFSS, {"fs.azure.account.key": "a2V5"})
    assert store.inner(f"{ABFSS}/day/x") == "events/day/x"
    assert store.inner(ABFSS) == store.inner(f"{ABFSS}/") == "events"
    assert store.outer("events/day/x") == f"{ABFSS}/day/x"
    with pytest.raises(ValueError, match="names no container: write <container>@<account>"):
        open_store("abfss://company.dfs.core.windows.net/day")


def test_settings_of_azure() -> None:
    host = "company.dfs.core.windows.net"
    keys = {f"fs.azure.account.key.{host}": "own", "fs.azure.account.key": "general"}
    assert azure_arguments(keys, host) == {"account_name": "company", "account_key": "own"}
    assert azure_arguments(keys, "other") == {"account_name": "other", "account_key": "general"}
    assert azure_arguments({"fs.azure.sas.fixed.token": "?sv=1"}, host)["sas_token"] == "?sv=1"
