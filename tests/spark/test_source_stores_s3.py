"""A store in a bucket, read in place by nsq-cat, by Spark and by spark-compact, with the credentials of each."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("pyspark")

from nsq_spark.compact.command import Compaction
from nsq_spark.compact.options import CompactOptions
from tests.support.archived_topic import TOPIC, publish
from tests.support.nsqd_process import MakeNsqd
from tests.support.s3 import environment_of, make_bucket
from tests.support.stored import StoreOfFiles
from tests.support.tool_process import run_tool

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

SMALL_FILES = "--max-bytes-per-file=16384"


def test_a_store_in_a_bucket(
    spark: Any, make_nsqd: MakeNsqd, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = make_bucket(endpoint)
    nsqd = make_nsqd(SMALL_FILES)
    publish(nsqd, range(100))
    with monkeypatch.context() as patch:
        for name, value in environment_of(endpoint).items():
            patch.setenv(name, value)
        store = StoreOfFiles(f"{bucket}/nsq")
        store.base(nsqd.data_path)
        publish(nsqd, range(100, 120))
        store.round(nsqd.data_path)
        done = run_tool("nsq_apps", "nsq_cat", "--topic=orders", store.url)
        assert (done.stderr, list(map(int, done.stdout.split()))) == ("", list(range(120)))
    assert "AWS_ACCESS_KEY_ID" not in os.environ
    # Executors get the settings from the driver, as for archives.
    settings = {
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
    }
    rows = spark.read.format("nsq").options(topic=TOPIC, **settings).load(store.url).collect()
    assert sorted((row.position, int(bytes(row.body))) for row in rows) == [(n, n) for n in range(120)]
    conf = tuple(f"spark.hadoop.{name}={value}" for name, value in settings.items())
    lake = f"{bucket.replace('s3:', 's3a:')}/lake"
    options = CompactOptions(store=(store.url,), output_dir=lake, conf=conf)
    written = Compaction.of(options).run(spark)
    assert Compaction.of(options).groups == []
    count = max(one.end_seq for one in store.files())
    assert sum(one.messages for one in written) == count
    again = spark.read.format("nsq").options(**settings).load(lake)
    assert sorted(int(bytes(row.body)) for row in again.select("body").collect()) == list(range(count))
