"""The kinds of problems: how bad each is, the words of its badge, and what to do about it. Pure."""

from __future__ import annotations

from typing import NamedTuple

ERROR = "error"
WARNING = "warning"
INFO = "info"
SEVERITIES = (ERROR, WARNING, INFO)
# Kinds whose `node` is an nsqlookupd.
LOOKUP_KINDS = ("no_lookup", "lookup_failed")


# By kind: the words of its badge, and what to do. The order is that of the list, by harm: publishes are refused, clients are
# not served, messages are lost or in danger, messages wait, and what may become one of these.
_ERRORS = {
    "disk_full": ("disk full", "Free space on its disk or raise its limit: it refuses publishes."),
    "unhealthy": ("not healthy", "Publishes may be refused. See the log of this nsqd."),
    "standby_acks": ("no standby", "Start its standby again: publishes are refused until it follows."),
    "store_acks": (
        "no store",
        "Bring back its store, or the network to it: publishes are refused until it answers.",
    ),
    "lease_no_primary": (
        "no primary",
        "Their processes live: bring back the store of the lease, or the nsqds that they wait for.",
    ),
    "no_nsqd": ("no nsqd", "Start an nsqd with --lookupd-tcp-address, or see the options of nsqadmin."),
    "node_failed": ("failed", "Look at its process, and at the network between it and nsqadmin."),
    "node_gone": (
        "gone",
        "If its process has ended, start it again with its data directory; dismiss it if it was taken away on purpose.",
    ),
    "lease_store": (
        "lease",
        "Bring back etcd or the bucket, or the network to it: an nsqd that cannot renew its lease ends serving.",
    ),
    "no_lookup": ("no nsqlookupd", "Start an nsqlookupd: until then, consumers that start find no nsqd."),
    "damage": ("damage", "Its log says which messages; nsqd --check-data shows the state of its files."),
    "same_address": (
        "same address",
        "Give each nsqd another --broadcast-address, or other ports. If it is one nsqd that has "
        "lost a connection, nsqlookupd soon forgets the old one.",
    ),
    "standby_alone": (
        "alone",
        "Start its standby again, or another one: a machine that is lost now takes messages with it.",
    ),
    "no_consumer": (
        "no consumer",
        "Start its consumers; delete the channel if its messages are not needed any more.",
    ),
    "stuck": (
        "stuck",
        "Look at its consumers: restart those that hold messages, or that are in back-off after errors.",
    ),
    "timing_out": (
        "timing out",
        "Find the consumer that holds messages for too long, or raise its message timeout.",
    ),
    "dead_letters_refused": (
        "dead letters refused",
        "Empty the dead-letter topic, raise its limit, or free the disk: until then, --max-attempts has no effect.",
    ),
    "store_unreadable": (
        "store unreadable",
        "Bring back its store, or the network to it: its log names the objects that it cannot read.",
    ),
    "auth_server": (
        "auth server",
        "Bring back an auth server of --auth-http-address: clients that connect now are refused.",
    ),
    "certificate_ends": (
        "certificate",
        "Renew its TLS certificate now, then send it SIGHUP: clients that check it will refuse it.",
    ),
}
_WARNINGS = {
    "disk": ("disk", "Free space on its disk or raise its limit: at the limit it refuses publishes."),
    "lookup_failed": (
        "nsqlookupd",
        "Consumers that ask only this nsqlookupd find no nsqd, or not all. Look at its process and log.",
    ),
    "restarts": ("restarts", "Its log, or that of its supervisor, says why it ends again and again."),
    "tcp_unreachable": (
        "no TCP",
        "Consumers cannot connect. Check its --broadcast-address and --broadcast-tcp-port, and firewalls.",
    ),
    "node_unlisted": ("not listed", "Consumers do not find it. Check its connection to nsqlookupd."),
    "node_half_listed": (
        "half listed",
        "Consumers that ask only the others do not find it. Check its --lookupd-tcp-address.",
    ),
    "standby_damaged": (
        "damaged copy",
        "Look at its log and its disk. If its primary is damaged in the same place, the messages are lost.",
    ),
    "standby_incomplete": ("incomplete", "Wait until it has copied everything, or see its log."),
    "standby_away": (
        "disconnected",
        "If its primary is lost, promote it; else look at the network between them.",
    ),
    "lease_standby_away": (
        "disconnected",
        "Look at its primary, and at the network between them. The lease decides about its promotion.",
    ),
    "standby_refused": (
        "refused",
        "Do not promote it: another primary serves. The logs of both say why it cannot follow; its messages stay on its disk.",
    ),
    "standby_lags": ("lags", "Look at the load of its machine and its disk, and at the network."),
    "standby_missing": (
        "no standby",
        "Start its standby. An nsqd that needs none has neither --accept-standbys nor --lease.",
    ),
    "store_away": (
        "store away",
        "Bring back its store, or the network to it. Until then, a lost machine takes messages with it.",
    ),
    "store_lags": ("store lags", "Look at the network to its store, and at the time that a request takes."),
    "store_damaged": (
        "damaged store",
        "Its log names the objects, which are in aside/ of the store. Its disk has their messages.",
    ),
    "growing": ("growing", "Add consumers, raise their max-in-flight, or find out why they are slow."),
    "old": (
        "old",
        "Add consumers, or find out why they are slow. --max-message-age sets the limit of a topic.",
    ),
    "many_attempts": (
        "many attempts",
        "Peek at it and see why its consumers fail, then discard it; --max-attempts moves such messages to dead letters.",
    ),
    "no_channel": ("no channel", "Subscribe a consumer. The first channel gets all that waits."),
    "requeueing": ("requeued", "Look at the errors of its consumers, and at its messages."),
    "dead_letters": ("dead letters", "See why they failed, repair the consumer, then requeue them."),
    "node_slow": ("slow", "Its metrics are old. Look at the load of its machine and its disk."),
    "disk_slow": (
        "slow disk",
        "Find out what else uses it, or replace it. Consumers that are behind wait for it, and so does free space.",
    ),
    "clock": ("clock", "Synchronize both clocks (NTP): ages, retention and deferred messages need them."),
    "certificate": ("certificate", "Renew its TLS certificate, then send it SIGHUP."),
    "paused": ("paused", "Resume it once the reason for the pause is over."),
}
_INFOS = {
    "draining": ("draining", "It ends when nothing is left, or at its time limit. Nothing has to be done."),
    "versions": ("versions", "An upgrade is under way. If it is not, bring the others to the same version."),
    "dropped": (
        "dropped",
        "Where each message matters, use names without #ephemeral; else add consumers, or raise --mem-queue-size.",
    ),
    "node_stopped": (
        "stopped",
        "Start it again with its data directory, or dismiss it if it was taken away on purpose.",
    ),
}
_ALL = (
    *((kind, ERROR, *words) for kind, words in _ERRORS.items()),
    *((kind, WARNING, *words) for kind, words in _WARNINGS.items()),
    *((kind, INFO, *words) for kind, words in _INFOS.items()),
)


class ProblemKind(NamedTuple):
    """A kind of problem: how bad it is, the words of its badge, what to do about it, and its rank in the list."""

    severity: str
    word: str
    advice: str
    rank: int


KINDS = {
    kind: ProblemKind(severity, word, advice, rank)
    for rank, (kind, severity, word, advice) in enumerate(_ALL)
}


class Problem(NamedTuple):
    """A problem and what it is about; names that do not apply are empty.

    text     what is wrong
    weight   problems of one kind are listed by it, highest first
    since_s  since when, in s since the epoch; 0: since it was found
    cause    problems of one kind with the same cause are one row of the list; most kinds have only one
    """

    kind: str
    text: str
    topic: str = ""
    channel: str = ""
    node: str = ""
    weight: float = 0.0
    since_s: float = 0.0
    cause: str = ""

    @property
    def key(self) -> str:
        return "|".join((self.kind, self.topic, self.channel, self.node))

    @property
    def about(self) -> ProblemKind:
        return KINDS[self.kind]

    @property
    def severity(self) -> str:
        return self.about.severity

    @property
    def rank(self) -> tuple[int, float, str]:
        """A key that sorts the worst first."""
        return self.about.rank, -self.weight, self.key

    @property
    def subject(self) -> str:
        """The topic, or `topic/channel`; empty if it is about none."""
        return "/".join(filter(None, (self.topic, self.channel)))

    @property
    def server(self) -> str:
        """The kind of server that `node` is."""
        return "nsqlookupd" if self.kind in LOOKUP_KINDS else "nsqd"
