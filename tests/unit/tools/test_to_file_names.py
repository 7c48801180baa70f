"""What files of nsq-to-file are called, and which options fit together."""

from __future__ import annotations

import pytest

from nsq_tools.to_file.finishing import filename_template, host_identifier, with_revision
from nsq_tools.to_file.options import PROGRAM
from nsq_tools.to_file.service import check, filename_format, has_revisions, is_shared
from nsqd_py.settings.declaration import BadOptions

SOURCE = ["--nsqd-tcp-address=127.0.0.1:4150", "--topic=t"]


def test_host_identifier() -> None:
    assert host_identifier("", "web1.example.com") == "web1"
    assert host_identifier("<SHORT_HOST>@<HOSTNAME>", "web1.example.com") == "web1@web1.example.com"


def test_template() -> None:
    given = "<TOPIC>/<HOST>.<PID><REV>.<DATETIME>"
    assert filename_template(given, "t", "h", 7, has_revisions=True) == "t/h.7<REV>.<DATETIME>"
    assert filename_template(given, "t", "h", 7, has_revisions=False) == "t/h.7.<DATETIME>"
    assert with_revision("a<REV>.log", 12) == "a-000012.log"


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("..", "%2E."),
        (".", "%2E"),
        (".nsq_to_file.0.json", "%2Ensq_to_file.0.json"),
        ("_nsq_manifest", "%5Fnsq_manifest"),
        ("_x.", "_x."),
    ],
)
def test_no_topic_names_a_file_outside_of_the_directory_or_one_of_its_own(topic: str, name: str) -> None:
    assert filename_template("<TOPIC>/<DATETIME>", topic, "h", 7, has_revisions=False) == f"{name}/<DATETIME>"


# --- options


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "<TOPIC>.<HOST><REV>.<DATETIME>.log"),
        (["--gzip"], "<TOPIC>.<HOST><REV>.<DATETIME>.log.gz"),
        (["--compress=zstd", "--format=jsonl"], "<TOPIC>.<HOST><REV>.<DATETIME>.jsonl.zst"),
        (["--compress=zstd", "--format=framed"], "<TOPIC>.<HOST><REV>.<DATETIME>.framed"),
        (["--gzip", "--filename-format=x<REV>.gz"], "x<REV>.gz"),
        (["--format=jsonl", "--filename-format=x.log"], "x.log"),
    ],
)
def test_suffixes(flags: list[str], expected: str) -> None:
    options = PROGRAM.read([*SOURCE, *flags])
    check(options)
    assert filename_format(options) == expected


@pytest.mark.parametrize(
    ("flags", "revisions", "shared"),
    [
        ([], False, True),
        (["--format=jsonl"], False, True),
        (["--gzip"], True, False),
        (["--format=framed"], True, False),
        (["--rotate-size=1"], True, True),
        (["--rotate-interval=1s"], True, False),
        (["--work-dir=/x"], True, False),
        (["--output-dir=/y", "--work-dir=/y"], False, True),
    ],
)
def test_which_files_are_appended_to(flags: list[str], revisions: bool, shared: bool) -> None:
    options = PROGRAM.read([*SOURCE, *flags])
    assert (has_revisions(options), is_shared(options)) == (revisions, shared)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--topic=t"], "--nsqd-tcp-address or --lookupd-http-address required"),
        ([*SOURCE, "--lookupd-http-address=x:1"], "not both"),
        (["--topic=t", "--lookupd-http-address=ftp://x"], "host:port"),
        (SOURCE[:1], "--topic or --topic-pattern required"),
        ([SOURCE[0], "--topic-pattern=x"], "--lookupd-http-address must be specified"),
        ([*SOURCE, "--gzip", "--filename-format=x"], "missing <REV>"),
        ([*SOURCE, "--format=framed", "--filename-format=x"], "missing <REV>"),
        ([*SOURCE, "--format=framed", "--gzip"], "none or zstd"),
        ([*SOURCE, "--gzip", "--compress=zstd"], "contradict"),
        ([*SOURCE, "--topic=bad topic"], "not a valid name"),
        ([*SOURCE, "--consumer-opt=nonsense,1"], "nonsense"),
        ([*SOURCE, "--table=delta"], "--table needs --format=parquet"),
        ([*SOURCE, "--output-dir=s3://b/x", "--filename-format=x.log"], "missing <REV>"),
    ],
)
def test_options_that_do_not_fit_together(flags: list[str], says: str) -> None:
    with pytest.raises(BadOptions, match=says):
        check(PROGRAM.read(flags))


def test_levels() -> None:
    with pytest.raises(Exception, match="--gzip-level must be from 1 to 9, got 10"):
        PROGRAM.read([*SOURCE, "--gzip-level=10"]).check_values()


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--filename-format=<TOPC><REV>.log", "<TOPC> is unknown; known are <TOPIC>, <HOST>"),
        ("--host-identifier=<HOST>", "<HOST> is unknown; known are <SHORT_HOST>, <HOSTNAME>"),
        ("--datetime-format=%Y%Q", "%Q is unknown; known are %A"),
        ("--datetime-format=%Y%", "% is unknown"),
        ("--topic-pattern=(", "--topic-pattern: missing"),
        ("--table=iceberg", "--table must be delta or iceberg:namespace.table, got"),
        ("--output-dir=ftp://host/path", "--output-dir must be a directory, or s3://"),
        ("--output-dir=s3://", "--output-dir must be a directory, or s3://"),
    ],
)
def test_unknown_words_of_names_are_refused(flag: str, says: str) -> None:
    with pytest.raises(BadOptions, match=says):
        PROGRAM.read([flag]).check_values()
