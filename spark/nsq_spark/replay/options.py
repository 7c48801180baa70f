"""The settings of spark-replay."""

from __future__ import annotations

from typing import Literal, TypeAlias

from nsqd_py.settings.declaration import Options, at_least, setting, string, strings, switch, urls
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS, format_duration
from nsqd_py.settings.kinds import choice
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.tools import SourceOptions
from nsqd_py.settings.types import CLIENT_OPTIONS, DURATION, INT, SPARK_SETTINGS, STRING

Dedupe: TypeAlias = Literal["", "id", "body"]

# Bytes of messages in one MPUB. With 128 KiB, nsqd needs a third less processor time, and tasks half as much again.
BATCH_BYTES = 512 * 1024
ANY_ORDER = ""
BY_TIME = "time"
MAX_SPEED = "max"
_FORMATS = ("lines", "jsonl", "framed", "parquet", "topic_log")
# Answers the question on the terminal.
_AGREE = r'run: until="\[y/N\]" then="y\n"'


ARCHIVE = strings(
    "File, directory or glob to read, also as a plain word (may be given several times): archives of nsq-to-file and "
    "of Go's nsq_to_file, data directories of nsqd. URLs such as s3a://bucket/dir and hdfs:// are read with the "
    "settings that --conf gives."
)


class _Archive(Options, title="Archive"):
    archive: tuple[str, ...] = ARCHIVE
    format: str = setting(
        choice({"": "", **{name: name for name in _FORMATS}}, word="format"),
        "",
        f"Format of all files, instead of recognising it: {', '.join(_FORMATS)}.",
        default_text="recognised",
    )
    default_topic: str = string(
        "Topic of files that do not contain it (lines).",
        default_text="of the manifest, or of the name if that fits only one",
    )
    topic_from_name: str = string(
        "Regular expression with a group (?P<topic>...) that finds the topic in the path of such files."
    )
    file_time_zone: str = setting(
        STRING,
        "",
        "Time zone of the hours in the names of files without timestamps (lines) that no manifest describes: --start and --end "
        "select whole files.",
        default_text="any: files of up to 15 hours before and after are sent too",
    )
    skip_damaged: bool = switch(
        "Pass over damaged records, and count them by file; otherwise damage ends the replay."
    )


class _ReplaySelection(Options, title="Selection"):
    topic: tuple[str, ...] = strings("Topic to send (may be given several times); all by default.", short="t")
    topic_pattern: str = string("Also send topics that match this regular expression (RE2).")
    start: str = string(
        "Send messages that were published at this time or later: RFC 3339 (UTC without an offset), a number of s, ms "
        "or ns since the epoch, or an age (-2h, -1d12h)."
    )
    end: str = string("Send messages that were published before this time.")
    where: str = string(
        "Send messages for which this predicate of Spark SQL is true: over the columns topic, channel, timestamp, "
        "timestamp_ns, id, attempts, body, nsqd, file, position and, where bodies are JSON, json.field."
    )
    json_schema: str = string(
        "Types of the fields that --where names, as Spark SQL writes them: 'n BIGINT, user STRUCT<name: STRING>'.",
        default_text="as Spark infers them, which reads all messages once more",
    )
    limit: int | None = setting(
        INT,
        None,
        "Send at most this number of messages: the first in the order of files, or of time with --order.",
        default_text="no limit",
        check=at_least(1),
    )
    dedupe: Dedupe = setting(
        choice({"": "", "id": "id", "body": "body"}, word="column"),
        "",
        "Send one of the messages with the same topic, id and body (id), or with the same topic and body (body). Messages with "
        "the same id and different bodies, of nsqds with the same --node-id, are all sent and counted.",
        default_text="none",
    )


class _ReplayDestination(SourceOptions, title="Destination"):
    nsqd_tcp_address: tuple[str, ...] = strings(
        "TCP address (host:port) of an nsqd to publish to (may be given several times: "
        "messages are spread over them, and go to another one when one fails)."
    )
    lookupd_http_address: tuple[str, ...] = urls(
        "HTTP address (host:port) of an nsqlookupd whose nsqds are published to (may be given several times)."
    )
    topic_map: tuple[str, ...] = strings(
        "old=new: publish the messages of a topic to another one (may be given several times)."
    )
    to_topic: str = string(
        "Publish all other messages to this topic.", default_text="the topic of the archive"
    )
    defer_ns: int = setting(DURATION, 0, "Delay after which nsqd delivers a message.")
    producer_opt: tuple[str, ...] = setting(
        CLIENT_OPTIONS,
        (),
        "Option of the producer as name,value with the names of go-nsq's Config, such as tls_v1,true or "
        "auth_secret,... (may be given several times).",
    )


class _Pace(Options, title="Pace"):
    rate: int | None = setting(
        INT,
        None,
        "Largest number of messages to publish a second, over all tasks.",
        default_text="no limit",
        check=at_least(1),
    )
    speed: str = setting(
        STRING,
        MAX_SPEED,
        "Keep the gaps of the archive (original), or make them shorter (2x, 10x) or longer (0.5x); max ignores them.",
    )
    catch_up: bool = switch(
        "With --speed: after a stall, send at once what is late. Without it, all messages behind the stall are sent later, with "
        "their gaps."
    )
    order: str = setting(
        choice({"": ANY_ORDER, "none": ANY_ORDER, "time": BY_TIME}, word="order"),
        ANY_ORDER,
        "time: each topic in the order in which it was published; none: the order that is fastest.",
        default_text="none",
    )


class _ReplaySafety(Options, title="Safety"):
    dry_run: bool = switch(
        "Publish nothing: show the number, size and times of the messages of each topic, and some messages."
    )
    allow_empty: bool = switch("Exit with status 0 if no message matches, instead of 1.")
    yes: bool = switch("Start without asking.")
    checkpoint: str = string(
        "Directory that keeps what nsqd acknowledged, so that the same command resumes after a kill or a failure. All "
        "executors must see it."
    )
    give_up_after_ns: int = setting(
        DURATION,
        10 * MINUTE_NS,
        "How long to retry, with growing pauses, while no nsqd takes a message.",
        check=at_least(SECOND_NS, format_duration),
    )
    report: str = string("File for a report in JSON; - is standard output.")
    refused_file: str = setting(
        STRING,
        "",
        "File for messages that nsqd refuses, such as those above its --max-msg-size: jsonl with id, nsqd, file, position and "
        "error of each. All others are sent. nsq-cat and spark-replay read it.",
        default_text="refused.jsonl in --checkpoint; without one, spark-replay-TIME-refused.jsonl in this directory",
    )
    dead_letter_topic: str = string(
        "Topic that also gets a message for each of them: its line of --refused-file without the body.",
        default_text="none",
    )


class _Spark(Options, title="Spark"):
    master: str = setting(
        STRING,
        "local[*]",
        "URL of the Spark master: local[4], local-cluster[2,1,1024], spark://host:7077, yarn, k8s://...",
    )
    conf: tuple[str, ...] = setting(
        SPARK_SETTINGS, (), "Setting of Spark as name=value (may be given several times)."
    )


class ReplayOptions(
    ProgramOptions, _Archive, _ReplaySelection, _ReplayDestination, _Pace, _ReplaySafety, _Spark
):
    """The options of spark-replay."""


PROGRAM = Program(
    "spark_replay",
    "spark-replay",
    "Publishes the messages of an archive again, or some of them. On a terminal, it shows its plan and asks before it "
    "starts. A message counts as sent when nsqd has acknowledged it. Every message is sent at least once: messages "
    "that were not acknowledged when something failed may be sent twice.",
    ReplayOptions,
    examples=(
        (
            "Show what there is of an hour of yesterday, and send nothing",
            "spark-replay /archive --topic=orders --start=2025-11-20T10:00:00Z --end=2025-11-20T11:00:00Z --dry-run",
        ),
        (
            "Replay it into another topic, ten times as fast as it was published",
            "spark-replay /archive --topic=orders --start=2025-11-20T10:00:00Z --end=2025-11-20T11:00:00Z "
            "--to-topic=orders_again --speed=10x --nsqd-tcp-address=127.0.0.1:4150",
            _AGREE,
        ),
        (
            "Replay the failed ones of the last two hours, each once, to the cluster that nsqlookupd knows",
            "spark-replay '/archive/orders.*' --start=-2h --where='json.status >= 500' --dedupe=id "
            "--lookupd-http-address=127.0.0.1:4161",
            _AGREE,
        ),
        (
            "Replay the data path of an nsqd that is gone, from a script that can be run again after a failure",
            "spark-replay /var/lib/nsqd --nsqd-tcp-address=127.0.0.1:4150 --checkpoint=/var/lib/replay --yes --report=r.json",
        ),
        (
            "On a cluster, at most 50,000 messages a second",
            "spark-replay s3a://archive/2025/11 --master=spark://10.0.0.1:7077 --rate=50000 "
            "--conf=spark.hadoop.fs.s3a.endpoint=http://10.0.0.9:9000 --nsqd-tcp-address=10.0.0.2:4150",
            "not run: needs a Spark cluster and a store of objects",
        ),
    ),
    argument="archive",
    exit_statuses=(
        (0, "all messages that matched were sent; also after a dry run, and after the answer `no`"),
        (
            1,
            "it failed, or no message matched, and nothing was sent; one line on standard error gives the reason",
        ),
        (2, "the command line or the config file is wrong; one line on standard error gives the remedy"),
        (
            3,
            "some messages were sent: it was stopped, or it failed in the middle, or nsqd refused some messages",
        ),
    ),
)
