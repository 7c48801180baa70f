"""Replays on local[2] into a real nsqd, whatever way they take through Spark; counted by message."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bcrypt
import pytest

pytest.importorskip("pyspark")

from nsq_spark.archive.splits import FileInfo, Requested
from nsq_spark.replay import driver
from nsq_spark.replay import messages as replay_messages
from nsq_spark.replay.checkpoint.directory import open_checkpoint
from nsq_spark.replay.checkpoint.ledger import Totals
from nsq_spark.replay.driver import SETTINGS, Replay
from nsq_spark.replay.job import BadJob, Destination, Job, Selection
from nsq_spark.replay.outcome import Outcome
from nsq_spark.replay.stored import StoredBefore
from nsq_spark.replay.task import Sender
from nsqd_py.client.options import ClientOptions
from tests.support.archives import BASE_NS, Message
from tests.support.certificates import make_certificates
from tests.support.ledger import compare
from tests.support.network import free_ports
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import MakeNsqlookupd
from tests.support.replay import files_of, write_framed

# One Spark for all of them.
pytestmark = pytest.mark.xdist_group("spark")

TOPICS = ("clicks", "orders")
CHANNEL = "count"
EACH = 400
FILES = 2
ALL = Selection()


def body(topic: str, file: int, number: int) -> bytes:
    return b'{"user":{"id":%d},"from":"%s","level":"%s"}' % (
        number,
        b"%s-%d-%d" % (topic.encode(), file, number),
        b"error" if number % 10 == 0 else b"info",
    )


def messages_of(topic: str, file: int) -> list[Message]:
    """In time they lie between those of the other file of the topic; the ids of both are the same."""
    return [
        Message(
            body(topic, file, number),
            topic,
            timestamp_ns=BASE_NS + number * 1000 + file * 500,
            id=f"{number:016x}",
        )
        for number in range(EACH)
    ]


def everything() -> list[Message]:
    return [message for topic in TOPICS for file in range(FILES) for message in messages_of(topic, file)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> list[FileInfo]:
    directory = tmp_path_factory.mktemp("archive")
    for topic in TOPICS:
        for file in range(FILES):
            write_framed(directory / f"{topic}.{file}.framed", messages_of(topic, file), record=20)
    return files_of(directory)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Several slices in a file of a few messages."""
    monkeypatch.setattr(replay_messages, "PART_BYTES", 20_000)
    yield


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    nsqd = make_nsqd()
    for topic in TOPICS:
        nsqd.create(topic, CHANNEL)
    return nsqd


def job_for(nsqd: NsqdProcess, selection: Selection = ALL, **parts: Any) -> Job:
    destination = Destination((f"127.0.0.1:{nsqd.tcp_port}",))
    return Job(("archive",), selection, destination, **parts)


def replay(
    spark: Any,
    job: Job,
    files: Sequence[FileInfo],
    stop: threading.Event | None = None,
    on_progress: Callable[[Totals], None] = lambda progress: None,
    *,
    is_dry: bool = False,
) -> Outcome:
    """As the command does it."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
    with (
        TemporaryDirectory() as scratch,
        closing(open_checkpoint(job.checkpoint or scratch, job, files)) as checkpoint,
    ):
        return Replay(session, checkpoint, on_progress, stop or threading.Event()).run(is_dry=is_dry)


def arrived(nsqd: NsqdProcess, topic: str) -> list[bytes]:
    depth = nsqd.wait_for_channel(topic, CHANNEL)["depth"]
    with nsqd.connect() as client:
        client.sub(topic, CHANNEL, 2500)
        return [message.body for message in client.consume(depth)]


def all_arrived(nsqd: NsqdProcess) -> list[bytes]:
    return [found for topic in TOPICS for found in arrived(nsqd, topic)]


def bodies(some: Sequence[Message]) -> list[bytes]:
    return [message.body for message in some]


# ---- selection


@pytest.mark.parametrize(
    ("selection", "is_wanted"),
    [
        (Selection(), lambda message: True),
        (Selection(Requested(frozenset(("orders",)))), lambda message: message.topic == "orders"),
        (Selection(where='body RLIKE \'"level":"error"\''), lambda message: b"error" in message.body),
        (
            Selection(where="json.user.id BETWEEN 7 AND 9"),
            lambda message: message.id[-16:] in (f"{n:016x}" for n in (7, 8, 9)),
        ),
        (
            Selection(where="json.level = 'error' AND topic = 'clicks' AND attempts = 1"),
            lambda message: b"error" in message.body and message.topic == "clicks",
        ),
        (Selection(where="json.nothing IS NOT NULL", json_schema="nothing INT"), lambda message: False),
    ],
    ids=["all", "a topic", "regular expression", "json", "columns and json", "nothing"],
)
def test_what_is_selected_arrives(
    spark: Any,
    nsqd: NsqdProcess,
    archive: list[FileInfo],
    selection: Selection,
    is_wanted: Callable[[Message], bool],
) -> None:
    requested = [message for message in everything() if is_wanted(message)]
    outcome = replay(spark, job_for(nsqd, selection), archive)
    assert (outcome.errors, outcome.exit_code) == ([], 0)
    assert outcome.counts.messages == outcome.matched == len(requested)
    compare(bodies(requested), all_arrived(nsqd)).require_sound()


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(None, id="as stored", marks=pytest.mark.slow),
        pytest.param("json.user.id >= 0", id="through SQL"),
    ],
)
def test_a_limit_is_exact_and_takes_the_first(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], where: str | None
) -> None:
    outcome = replay(spark, job_for(nsqd, Selection(where=where, limit=EACH + 33)), archive)
    assert outcome.counts.messages == EACH + 33
    compare(bodies(everything()[: EACH + 33]), all_arrived(nsqd)).require_sound()


@pytest.mark.parametrize(
    "by_time", [pytest.param(False, id="by file", marks=pytest.mark.slow), pytest.param(True, id="by time")]
)
def test_duplicates_are_sent_once(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], tmp_path: Path, by_time: bool
) -> None:
    """Both files of a topic have the same ids, with different bodies, and a third one has some messages once more."""
    copies = [
        message._replace(timestamp_ns=message.known_ns + 7, nsqd="other:4150")
        for message in messages_of("clicks", 0)[:50]
    ]
    files = [*archive, *files_of(write_framed(tmp_path / "clicks.copy.framed", copies))]
    job = job_for(nsqd, Selection(dedupe="id"), by_time=by_time)
    assert replay(spark, job, files, is_dry=True).shared_ids == len(TOPICS) * EACH
    outcome = replay(spark, job, files)
    assert (outcome.errors, outcome.exit_code, outcome.shared_ids) == ([], 0, len(TOPICS) * EACH)
    compare(bodies(everything()), all_arrived(nsqd)).require_sound()


def test_a_limit_without_duplicates(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]) -> None:
    replay(spark, job_for(nsqd, Selection(dedupe="body", limit=EACH + 7)), archive)
    found = all_arrived(nsqd)
    assert len(found) == EACH + 7
    assert compare(bodies(everything()), found).of("unseen", "twice") == []


def test_a_predicate_that_is_none_is_refused_before_anything_is_sent(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]
) -> None:
    for where in "no_such_column = 1", "topic =", "sum(attempts) > 1", "body", "json.user.size > 1":
        with pytest.raises(BadJob) as error:
            replay(spark, job_for(nsqd, Selection(where=where)), archive)
        assert "\n" not in str(error.value)
    assert all_arrived(nsqd) == []


# ---- order


@pytest.mark.ours
@pytest.mark.parametrize("where", [None, "json.level = 'info'"], ids=["as stored", "through SQL"])
def test_each_topic_is_in_the_order_of_its_times(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], where: str | None
) -> None:
    outcome = replay(spark, job_for(nsqd, Selection(where=where), by_time=True), archive)
    assert outcome.exit_code == 0
    for topic in TOPICS:
        some = [message for file in range(FILES) for message in messages_of(topic, file)]
        in_order = sorted(some, key=lambda message: message.known_ns)
        requested = [message.body for message in in_order if where is None or b"info" in message.body]
        assert arrived(nsqd, topic) == requested


def test_the_gaps_of_the_archive_are_kept_from_the_first_message_on(
    spark: Any, nsqd: NsqdProcess, tmp_path: Path
) -> None:
    """How long Spark sorts is no reason to send messages at once."""
    some = [
        message._replace(timestamp_ns=BASE_NS + number * 10**7)
        for number, message in enumerate(messages_of("orders", 0))
    ]
    path = write_framed(tmp_path / "orders.framed", list(reversed(some)), record=20)
    assert replay(spark, job_for(nsqd, speed=1.0), files_of(path)).exit_code == 0
    with nsqd.connect() as client:
        client.sub("orders", CHANNEL, 2500)
        found = client.consume(EACH)
    assert [message.body for message in found] == bodies(some)
    ages_ns = [message.timestamp_ns - found[0].timestamp_ns for message in found]
    assert ages_ns[-1] > 0.9 * 10**7 * EACH
    assert sum(age_ns < 10**9 for age_ns in ages_ns) < EACH / 2


def test_a_rate_is_that_of_all_tasks_however_few_they_are(
    spark: Any, nsqd: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single task has all of it, not the share of a core."""
    senders: list[Sender] = []

    def sender(*parts: Any) -> Sender:
        senders.append(Sender(*parts))
        return senders[-1]

    monkeypatch.setattr(driver, "Sender", sender)
    path = write_framed(tmp_path / "orders.framed", messages_of("orders", 0)[:100], record=20)
    assert replay(spark, job_for(nsqd, rate=1000.0), files_of(path)).counts.messages == 100
    assert [pace.rate for pace in senders[0].paces.values()] == [1000.0]


def test_the_earliest_are_within_the_limit(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]) -> None:
    replay(spark, job_for(nsqd, Selection(limit=101), by_time=True), archive)
    found = all_arrived(nsqd)
    in_order = sorted(everything(), key=lambda message: message.known_ns)
    assert len(found) == 101
    assert compare(bodies(in_order[:100]), found).of("lost", "twice") == []
    assert compare(bodies(in_order[:102]), found).of("unseen") == []


# ---- ends, and goes on


@pytest.mark.parametrize(
    ("selection", "by_time"),
    [
        (ALL, False),
        (ALL, True),
        (Selection(where="json.user.id >= 0"), False),
        (Selection(dedupe="body"), False),
    ],
    ids=["as stored", "by time", "through SQL", "shuffled"],
)
def test_a_stopped_replay_goes_on_where_it_was(
    spark: Any,
    nsqd: NsqdProcess,
    archive: list[FileInfo],
    tmp_path: Path,
    selection: Selection,
    by_time: bool,
) -> None:
    job = job_for(nsqd, selection, by_time=by_time, rate=400.0, checkpoint=str(tmp_path / "checkpoint"))
    stop = threading.Event()

    def look(progress: Totals) -> None:
        if progress.sent >= 100:
            stop.set()

    first = replay(spark, job, archive, stop, look)
    assert (first.is_stopped, first.exit_code) == (True, 3)
    assert 100 <= first.counts.messages < 4 * EACH
    second = replay(spark, replace(job, rate=None), archive)
    assert (second.exit_code, second.errors) == (0, [])
    found = compare(bodies(everything()), all_arrived(nsqd), at_least_once=True).require_sound()
    assert found.deliveries == first.counts.messages + second.counts.messages
    assert found.again <= second.counts.possible_duplicates
    third = replay(spark, job, archive)
    assert (third.exit_code, third.counts.messages) == (0, 0)


def test_a_checkpoint_that_cannot_be_ended_is_an_error_and_not_the_end(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], tmp_path: Path
) -> None:
    job = job_for(nsqd, checkpoint=str(tmp_path / "checkpoint"))
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "complete").symlink_to("/nowhere")
    outcome = replay(spark, job, archive)
    assert (outcome.exit_code, outcome.counts.messages) == (3, 4 * EACH)
    assert outcome.errors == [
        f"the checkpoint {tmp_path}/checkpoint cannot be used: is a symbolic link, which is not followed"
    ]
    (tmp_path / "checkpoint" / "complete").unlink()
    again = replay(spark, job, archive)
    assert (again.exit_code, again.counts.messages) == (0, 0)


def test_an_nsqd_that_comes_back(spark: Any, make_nsqd: MakeNsqd, archive: list[FileInfo]) -> None:
    """Killed in the middle: nothing is lost, and its logs say what is there twice."""
    port = free_ports(1)[0]
    nsqd = make_nsqd(f"--tcp-address=127.0.0.1:{port}", f"--http-address=127.0.0.1:{port + 1}")
    for topic in TOPICS:
        nsqd.create(topic, CHANNEL)
    restarts = iter([True])

    def look(progress: Totals) -> None:
        if progress.sent >= 100 and next(restarts, False):
            nsqd.restart(clean=False)

    outcome = replay(spark, job_for(nsqd, rate=800.0), archive, on_progress=look)
    assert next(restarts, None) is None
    assert (outcome.errors, outcome.exit_code, outcome.counts.messages) == ([], 0, 4 * EACH)
    found = compare(bodies(everything()), all_arrived(nsqd), at_least_once=True).require_sound()
    assert found.again == outcome.counts.possible_duplicates


def test_a_secured_nsqd_that_a_secured_nsqlookupd_names(
    spark: Any, make_nsqd: MakeNsqd, make_nsqlookupd: MakeNsqlookupd, archive: list[FileInfo], tmp_path: Path
) -> None:
    """The sink and a replay find it over HTTPS, and publish over TLS with a client certificate."""
    certificates = make_certificates(tmp_path / "certificates")
    logins = tmp_path / "logins"
    logins.write_text("publisher:" + bcrypt.hashpw(b"pass:word", bcrypt.gensalt(4)).decode() + "\n")
    logins.chmod(0o600)
    login = f"--http-auth-file={logins}"
    lookupd = make_nsqlookupd(*certificates.server_flags, login)
    nsqd = make_nsqd(
        *certificates.nsqd_flags,
        login,
        "--tls-required=tcp-https",
        f"--tls-root-ca-file={certificates.authority}",
        "--tls-client-auth-policy=require-verify",
        f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",
        "--lookupd-tls",
        f"--lookupd-tls-root-ca-file={certificates.authority}",
        "--broadcast-address=127.0.0.1",
    )
    nodes = f"https://publisher:pass%3Aword@127.0.0.1:{lookupd.http_port}"
    no_certificate = {"tls_v1": "true", "tls_root_ca_file": str(certificates.authority)}
    pair = {"tls_cert": str(certificates.client_certificate), "tls_key": str(certificates.client_key)}
    trusted = {**no_certificate, **pair}

    def write(secrets: dict[str, str], limit_s: int = 1) -> None:
        given = {"lookupdHttpAddress": nodes, "topic": "sink", "giveUpAfter": f"{limit_s}s"}
        options = given | {f"nsq.{name}": value for name, value in secrets.items()}
        spark.createDataFrame([(b"1",)], "body BINARY").write.format("nsq").mode("append").options(
            **options
        ).save()

    def replayed(secrets: dict[str, str], limit_s: int = 1) -> Outcome:
        destination = Destination((), (nodes,), ClientOptions.of(**secrets))
        return replay(spark, Job(("archive",), ALL, destination, give_up_after_s=limit_s), archive)

    for secrets in {}, no_certificate:
        with pytest.raises(Exception, match="not published"):
            write(secrets)
        assert replayed(secrets).counts.messages == 0
    write(trusted, 60)
    outcome = replayed(trusted, 60)
    assert (outcome.errors, outcome.counts.messages) == ([], 4 * EACH)
    # It can ask the logs.
    assert StoredBefore(Destination((), (nodes,), ClientOptions.of(**trusted))).duplicates({}) == 0
    topics = {topic["topic_name"]: topic["message_count"] for topic in nsqd.stats()["topics"]}
    assert topics == {"sink": 1, "clicks": 2 * EACH, "orders": 2 * EACH}


# ---- and is only looked at


def test_a_dry_run_finds_what_would_be_sent(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]) -> None:
    outcome = replay(spark, job_for(nsqd, Selection(where="json.level = 'error'")), archive, is_dry=True)
    look = outcome.dry_run
    assert look is not None
    errors = {message.body.decode() for message in everything() if b"error" in message.body}
    assert {topic: found.count for topic, found in look.topics.items()} == {"clicks": 80, "orders": 80}
    assert len(look.first) == 10 and {text.split(" ", 3)[3] for text in look.first} <= errors
    assert (outcome.matched, outcome.counts.messages) == (len(errors), 0)
    wait_until(lambda: all_arrived(nsqd) == [])


def test_a_jsonl_archive_is_read_by_spark_and_goes_on(spark: Any, nsqd: NsqdProcess, tmp_path: Path) -> None:
    """Slices of Spark's readers too are done, or sent again as a whole."""
    lines = [
        {
            "timestamp": BASE_NS + n,
            "id": f"{n:016x}",
            "attempts": 1,
            "topic": "orders",
            "channel": "c",
            "nsqd": "h:1",
            "body": f'{{"n": {n}}}',
        }
        for n in range(EACH)
    ]
    path = tmp_path / "orders.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    entry = {
        "offset": 0,
        "bytes": path.stat().st_size,
        "format": "jsonl",
        "compress": "none",
        "topic": "orders",
    }
    times = {"first_timestamp": BASE_NS, "last_timestamp": BASE_NS + EACH}
    (tmp_path / "_nsq_manifest").write_text(json.dumps({"path": "orders.jsonl", **entry, **times}) + "\n")
    job = job_for(nsqd, Selection(where="json.n >= 7"), rate=100.0, checkpoint=str(tmp_path / "checkpoint"))
    stop = threading.Event()
    first = replay(
        spark, job, files_of(path), stop, lambda progress: stop.set() if progress.sent >= 20 else None
    )
    assert first.is_stopped
    second = replay(spark, replace(job, rate=None), files_of(path))
    assert (second.exit_code, second.errors) == (0, [])
    assert set(arrived(nsqd, "orders")) == {line["body"].encode() for line in lines[7:]}
