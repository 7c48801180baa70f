"""The paths of Go's nsqadmin, with its checks, texts and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import orjson
from werkzeug.wrappers import Request, Response

from nsqadmin_py.audit_trail import DONE, NOT_DONE
from nsqadmin_py.clusterinfo import ClusterInfo
from nsqadmin_py.go_json import by_node_and_nearness, sum_of_channels, sum_of_topics, without_empty_counts
from nsqadmin_py.refusals import NotThere, RequestRefused
from nsqadmin_py.web.actions import ActionRequest, Actions
from nsqadmin_py.web.answers import TEXT, body_of, object_in, plain, text_of, uncached, upstream_failed
from nsqadmin_py.web.app import Handlers
from nsqd_py.cluster.producers import http_address
from nsqd_py.cluster.values import Statistics, texts_in
from nsqd_py.net.http import BadStatus, HttpClientError, parse_url
from nsqd_py.runtime.documents import load_foreign_json
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.program import LOG_LEVEL

_MOST_CONFIG_BYTES = 1024 * 1024
_SET_OPTION = "set_option"  # in the audit trail
_ACTIONS = ("pause", "unpause", "empty")
# What Graphite draws or lists, by its first bytes.
_TYPES = {
    b"\x89PNG": "image/png",
    b"[": "application/json",
    b"{": "application/json",
    b"<svg": "image/svg+xml",
}
_ERRORS = frozenset(status for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST)


class GoApi(Handlers):
    """Handlers of Go's paths."""

    def ping(self, request: Request) -> Response:
        return plain("OK")

    # ---- what there is

    def topics(self, request: Request) -> Statistics:
        info = self.info()
        topics = list(filter(self._sees(request), info.topics()))
        if request.args.get("inactive") == "true":
            found = {}
            if info.lookupds:
                found = info.inactive_topics(topics)
            return {"topics": found, "message": info.warning}
        return {"topics": topics or None, "message": info.warning}

    def topic(self, request: Request, topic: str) -> Statistics:
        info = self.info()
        rows = info.stats(info.producers_of(topic), topic)
        metrics = without_empty_counts(sum_of_topics(topic, rows), is_channel=False)
        return metrics | {"message": info.warning}

    def channel(self, request: Request, topic: str, channel: str) -> Statistics:
        info = self.info()
        rows = info.stats(info.producers_of(topic), topic, channel, clients=True)
        parts = [part for part in _channels_of(rows) if part["channel_name"] == channel]
        if not parts:
            raise NotThere("CHANNEL_NOT_FOUND")
        metrics = sum_of_channels(parts)
        if metrics["clients"]:
            metrics["clients"].sort(key=by_node_and_nearness)
        return without_empty_counts(metrics, is_channel=True) | {"message": info.warning}

    def nodes(self, request: Request) -> Statistics:
        info = self.info()
        producers = info.producers()
        sees = self._sees(request)
        for producer in producers:
            if producer["topics"]:
                producer["topics"] = [row for row in producer["topics"] if sees(row["topic"])]
        return {"nodes": producers or None, "message": info.warning}

    def node(self, request: Request, node: str) -> Statistics:
        info = self.info()
        found = [producer for producer in info.producers() if http_address(producer) == node]
        if not found:
            raise NotThere("NODE_NOT_FOUND")
        rows = self._seen_stats(request, info, found[:1], clients=True)
        metrics = {
            "node": node,
            "topics": [without_empty_counts(row, is_channel=False) for row in rows] or None,
            "total_messages": sum(row["message_count"] for row in rows),
            "total_clients": sum(len(part["clients"] or ()) for part in _channels_of(rows)),
        }
        return metrics | {"message": info.warning}

    def counter(self, request: Request) -> Statistics:
        info = self.info()
        stats: dict[str, Statistics] = {}
        for part in _channels_of(self._seen_stats(request, info, info.producers())):
            names = {name: part[name] for name in ("node", "topic_name", "channel_name")}
            key = f"{part['topic_name']}:{part['channel_name']}:{part['node']}"
            known = stats.setdefault(key, names | {"message_count": 0})
            known["message_count"] += part["message_count"]
        return {"stats": stats, "message": info.warning}

    def _seen_stats(
        self, request: Request, info: ClusterInfo, producers: list[Statistics], *, clients: bool = False
    ) -> list[Statistics]:
        """Return the topics of nsqds that the user sees."""
        sees = self._sees(request)
        rows = info.stats(producers, clients=clients)
        return [row for row in rows if sees(row["topic_name"])]

    def _sees(self, request: Request) -> Callable[[str], bool]:
        return self.access.scope(request).sees

    # ---- actions

    def create(self, request: Request) -> Statistics:
        self.access.check_may_act(request)
        body = object_in(request)
        return self._perform(
            request, ActionRequest("create", text_of(body, "topic"), text_of(body, "channel"))
        )

    def delete(self, request: Request, topic: str, channel: str = "") -> Statistics:
        return self._perform(request, ActionRequest("delete", topic, channel))

    def tombstone(self, request: Request, node: str) -> Statistics:
        self.access.check_may_act(request)
        topic = text_of(object_in(request, "INVALID_BODY"), "topic", "INVALID_BODY")
        return self._perform(request, ActionRequest("tombstone", topic, "", node))

    def act(self, request: Request, topic: str, channel: str = "") -> Statistics:
        """Pause, unpause or empty a topic or channel."""
        self.access.check_action(request, topic)
        action = text_of(object_in(request), "action")
        if action not in _ACTIONS:
            raise RequestRefused(400, "INVALID_ACTION")
        return self._perform(request, ActionRequest(action, topic, channel))

    def _perform(self, request: Request, order: ActionRequest) -> Statistics:
        return {"message": Actions.like(self).perform(request, order)["message"]}

    # ---- Graphite

    def graphite(self, request: Request) -> Statistics:
        self.access.check_sees_all(request)
        if request.args.get("metric") != "rate":
            raise RequestRefused(400, "INVALID_ARG_METRIC")
        if "target" not in request.args:
            raise RequestRefused(400, "INVALID_ARG_TARGET")
        if not self.options.graphite_url:
            raise NotThere("GRAPHITE_URL_REQUIRED")
        interval_s = self.options.statsd_interval_ns // SECOND_NS
        begin_s = 2 * self.options.statsd_interval_ns // SECOND_NS
        asked = {
            "format": "json",
            "from": f"-{begin_s}sec",
            "target": request.args["target"],
            "until": f"-{interval_s}sec",
        }
        try:
            url = parse_url(f"{self.options.graphite_url}/render?{urlencode(asked)}")
            rate = float(load_foreign_json(self.upstream.get_url(url))[0]["datapoints"][0][0])
        except HttpClientError as error:
            raise self._graphite_failed(str(error)) from error
        except (ArithmeticError, ValueError, TypeError, LookupError) as error:
            raise self._graphite_failed("the answer has no datapoints") from error
        return {"rate": "N/A" if rate < 0 else f"{rate / max(interval_s, 1):.2f}"}

    def render(self, request: Request) -> Response:
        """Forward a request to Graphite, with the login of --graphite-url: the client's is for nsqadmin."""
        self.access.check_sees_all(request)
        url = replace(parse_url(self.options.graphite_url), path="/render")
        try:
            query = request.query_string.decode("latin-1")
            body = self.upstream.get_url(url.with_query(query))
        except BadStatus as error:
            status = error.status if error.status in _ERRORS else 502
            return Response(error.body, status, {"Content-Type": TEXT})
        except HttpClientError as error:
            raise self._graphite_failed(str(error)) from error
        kinds = (kind for begin, kind in _TYPES.items() if body.startswith(begin))
        return uncached(body, next(kinds, TEXT))

    def _graphite_failed(self, reason: str) -> RequestRefused:
        self.log.of_clients.error("graphite request failed - %s", reason)
        return upstream_failed(reason)

    # ---- settings

    def config(self, request: Request, opt: str) -> Any:
        self.access.check_config(request)
        self.access.check_sees_all(request)
        if request.method == "PUT":
            self.access.check_action(request)
            self._set_and_record(request, opt, _config_value(request))
        value = self._option(opt)
        if isinstance(value, tuple):
            return list(value)
        return value

    def _option(self, opt: str) -> Any:
        """Return the value of an option, without its secrets. Raises RequestRefused."""
        try:
            return self.options.by_config_key(opt)
        except KeyError as error:
            raise RequestRefused(400, "INVALID_OPTION") from error

    def _set_and_record(self, request: Request, opt: str, value: bytes) -> None:
        names = {"option": opt}
        try:
            names["value"] = self._set_option(opt, value)
        except RequestRefused as refusal:
            self._record(request, names, NOT_DONE, refusal.message)
            raise
        self._record(request, names, DONE, "ok")

    def _record(self, request: Request, names: dict[str, str], state: str, result: str) -> None:
        entry = self.audit_log.record(request, _SET_OPTION, names, state, result)
        self.audit_log.notify(request, _SET_OPTION, entry)

    def _set_option(self, opt: str, value: bytes) -> str:
        """Set an option, and return its value for the audit trail. Raises RequestRefused."""
        try:
            if opt == "log_level":
                text = value.decode()
                self.options.log_level = self.log.level = LOG_LEVEL.parse(text)
                return text
            if opt == "nsqlookupd_http_addresses":
                addresses = orjson.loads(value)
                if addresses is None:  # how Go's JSON writes a list that is nil
                    addresses = []
                if texts_in({"addresses": addresses}, "addresses") != addresses:
                    raise ValueError("expected a list of strings")
                self.options.lookupd_http_address = tuple(addresses)
                self.poller.set_lookupds(addresses)
                self.poller.poll_soon()
                return ", ".join(self._option(opt))
        except ValueError as error:
            raise RequestRefused(400, "INVALID_VALUE") from error
        raise RequestRefused(400, "INVALID_OPTION")


def _channels_of(rows: list[Statistics]) -> list[Statistics]:
    return [part for row in rows for part in row["channels"] or ()]


def _config_value(request: Request) -> bytes:
    try:
        value = body_of(request, _MOST_CONFIG_BYTES)
    except RequestRefused as refusal:
        raise RequestRefused(413, "INVALID_VALUE") from refusal
    if not value:
        raise RequestRefused(413, "INVALID_VALUE")
    return value
