"""The paths of Go's nsqadmin, with its checks, texts and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import orjson
from werkzeug.wrappers import Request, Response

from nsqadmin_py.audit_trail import NOT_DONE
from nsqadmin_py.clusterinfo import Errors, warning
from nsqadmin_py.go_json import by_node_and_nearness, sum_of_channels, sum_of_topics, without_empty_counts
from nsqadmin_py.web.actions import ActionRequest, Actions
from nsqadmin_py.web.answers import RequestRefused, as_go, body_of, object_in, plain, text_of
from nsqadmin_py.web.app import Services
from nsqd_py.cluster.producers import http_address
from nsqd_py.cluster.values import Statistics, texts_in
from nsqd_py.net.http.client import BadStatus, HttpClientError, parse_url
from nsqd_py.runtime.documents import load_foreign_json
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.program import LOG_LEVEL

_MOST_CONFIG_BYTES = 1024 * 1024
_SET_OPTION = "set_option"  # in the audit trail
_ACTIONS = ("pause", "unpause", "empty")
# What Graphite draws or lists, by its first bytes.
_TYPES = ((b"\x89PNG", "image/png"), (b"[", "application/json"), (b"{", "application/json"), (b"<svg", "image/svg+xml"))
_ERRORS = frozenset(status for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST)


@dataclass(frozen=True, slots=True)
class GoApi:
    """Handlers of Go's paths."""

    services: Services

    def ping(self, request: Request) -> Response:
        return plain("OK")

    # ---- what there is

    def topics(self, request: Request) -> Response:
        info = self.services.info()
        known, errors = info.topics()
        topics = list(filter(self._sees(request), known))
        if request.args.get("inactive") == "true":
            found = info.inactive_topics(topics) if info.lookupds else {}
            return as_go({"topics": found, "message": warning(errors)})
        return as_go({"topics": topics or None, "message": warning(errors)})

    def topic(self, request: Request, topic: str) -> Response:
        rows, errors = self._stats_of(topic)
        metrics = without_empty_counts(sum_of_topics(topic, rows), is_channel=False)
        return as_go(metrics | {"message": warning(errors)})

    def channel(self, request: Request, topic: str, channel: str) -> Response:
        rows, errors = self._stats_of(topic, channel)
        parts = [part for row in rows for part in row["channels"] or () if part["channel_name"] == channel]
        if not parts:
            raise RequestRefused(404, "CHANNEL_NOT_FOUND")
        metrics = sum_of_channels(parts)
        if metrics["clients"]:
            metrics["clients"].sort(key=by_node_and_nearness)
        metrics = without_empty_counts(metrics, is_channel=True)
        return as_go(metrics | {"message": warning(errors)})

    def _stats_of(self, topic: str, channel: str = "") -> tuple[list[Statistics], Errors]:
        info = self.services.info()
        producers, errors = info.producers_of(topic)
        found = info.stats(producers, topic, channel, clients=bool(channel))
        return found[0], errors + found[1]

    def nodes(self, request: Request) -> Response:
        producers, errors = self.services.info().producers()
        sees = self._sees(request)
        for producer in producers:
            if producer["topics"]:
                producer["topics"] = [row for row in producer["topics"] if sees(row["topic"])]
        return as_go({"nodes": producers or None, "message": warning(errors)})

    def node(self, request: Request, node: str) -> Response:
        info = self.services.info()
        producers, errors = info.producers()
        found = [producer for producer in producers if http_address(producer) == node]
        if not found:
            raise RequestRefused(404, "NODE_NOT_FOUND")
        all_rows, _ = info.stats(found[:1], clients=True)
        sees = self._sees(request)
        rows = [row for row in all_rows if sees(row["topic_name"])]
        metrics = {
            "node": node,
            "topics": [without_empty_counts(row, is_channel=False) for row in rows] or None,
            "total_messages": sum(row["message_count"] for row in rows),
            "total_clients": sum(len(part["clients"] or ()) for row in rows for part in row["channels"] or ()),
        }
        return as_go(metrics | {"message": warning(errors)})

    def counter(self, request: Request) -> Response:
        info = self.services.info()
        producers, errors = info.producers()
        rows, more = info.stats(producers)
        sees = self._sees(request)
        stats: dict[str, Statistics] = {}
        for row in rows:
            for part in row["channels"] or () if sees(row["topic_name"]) else ():
                names = {name: part[name] for name in ("node", "topic_name", "channel_name")}
                key = f"{part['topic_name']}:{part['channel_name']}:{part['node']}"
                known = stats.setdefault(key, names | {"message_count": 0})
                known["message_count"] += part["message_count"]
        return as_go({"stats": stats, "message": warning(errors + more)})

    # ---- actions

    def create(self, request: Request) -> Response:
        self.services.access.check_may_act(request)
        body = object_in(request)
        return self._perform(request, ActionRequest("create", text_of(body, "topic"), text_of(body, "channel")))

    def delete(self, request: Request, topic: str, channel: str = "") -> Response:
        return self._perform(request, ActionRequest("delete", topic, channel))

    def tombstone(self, request: Request, node: str) -> Response:
        self.services.access.check_may_act(request)
        topic = text_of(object_in(request, "INVALID_BODY"), "topic", "INVALID_BODY")
        return self._perform(request, ActionRequest("tombstone", topic, "", node))

    def act(self, request: Request, topic: str, channel: str = "") -> Response:
        """Pause, unpause or empty a topic or channel."""
        self.services.access.check_action(request, topic)
        action = text_of(object_in(request), "action")
        if action not in _ACTIONS:
            raise RequestRefused(400, "INVALID_ACTION")
        return self._perform(request, ActionRequest(action, topic, channel))

    def _perform(self, request: Request, order: ActionRequest) -> Response:
        return as_go({"message": Actions(self.services).perform(request, order)["message"]})

    # ---- Graphite

    def graphite(self, request: Request) -> Response:
        self.services.access.check_sees_all(request)
        if request.args.get("metric") != "rate":
            raise RequestRefused(400, "INVALID_ARG_METRIC")
        if "target" not in request.args:
            raise RequestRefused(400, "INVALID_ARG_TARGET")
        if not self.services.options.graphite_url:
            raise RequestRefused(404, "GRAPHITE_URL_REQUIRED")
        interval_s = self.services.options.statsd_interval_ns // SECOND_NS
        begin_s, target = 2 * self.services.options.statsd_interval_ns // SECOND_NS, request.args["target"]
        asked = {"format": "json", "from": f"-{begin_s}sec", "target": target, "until": f"-{interval_s}sec"}
        try:
            url = parse_url(f"{self.services.options.graphite_url}/render?{urlencode(asked)}")
            rate = float(load_foreign_json(self.services.upstream.get_url(url))[0]["datapoints"][0][0])
        except HttpClientError as error:
            raise self._graphite_failed(str(error)) from error
        except (ArithmeticError, ValueError, TypeError, LookupError) as error:
            raise self._graphite_failed("the answer has no datapoints") from error
        return as_go({"rate": "N/A" if rate < 0 else f"{rate / max(interval_s, 1):.2f}"})

    def render(self, request: Request) -> Response:
        """Forward a request to Graphite, with the login of --graphite-url: the client's is for nsqadmin."""
        self.services.access.check_sees_all(request)
        url = replace(parse_url(self.services.options.graphite_url), path="/render").with_query(
            request.query_string.decode("latin-1")
        )
        try:
            body = self.services.upstream.get_url(url)
        except BadStatus as error:
            status = error.status if error.status in _ERRORS else 502
            return Response(error.body, status, {"Content-Type": "text/plain; charset=utf-8"})
        except HttpClientError as error:
            raise self._graphite_failed(str(error)) from error
        kind = next((kind for begin, kind in _TYPES if body.startswith(begin)), "text/plain; charset=utf-8")
        return Response(body, 200, {"Content-Type": kind, "Cache-Control": "no-store"})

    def _graphite_failed(self, reason: str) -> RequestRefused:
        self.services.log.of_clients.error("graphite request failed - %s", reason)
        return RequestRefused(502, f"UPSTREAM_ERROR: {reason}")

    # ---- settings

    def config(self, request: Request, opt: str) -> Response:
        self.services.access.check_config(request)
        self.services.access.check_sees_all(request)
        if request.method == "PUT":
            self.services.access.check_action(request)
            self._set_and_record(request, opt, _config_value(request))
        value = self._option(opt)
        return as_go(list(value) if isinstance(value, tuple) else value)

    def _option(self, opt: str) -> Any:
        """Return the value of an option, without its secrets. Raises RequestRefused."""
        try:
            return self.services.options.by_config_key(opt)
        except KeyError as error:
            raise RequestRefused(400, "INVALID_OPTION") from error

    def _set_and_record(self, request: Request, opt: str, value: bytes) -> None:
        audit_log = self.services.audit_log
        names = {"option": opt}
        try:
            self._set_option(opt, value)
        except RequestRefused as refusal:
            audit_log.notify(request, _SET_OPTION, audit_log.record(request, _SET_OPTION, names, NOT_DONE, refusal.message))
            raise
        names["value"] = value.decode() if opt == "log_level" else ", ".join(self._option(opt))
        audit_log.notify(request, _SET_OPTION, audit_log.record(request, _SET_OPTION, names))

    def _set_option(self, opt: str, value: bytes) -> None:
        try:
            if opt == "log_level":
                level = LOG_LEVEL.parse(value.decode())
                self.services.options.log_level = self.services.log.level = level
            elif opt == "nsqlookupd_http_addresses":
                addresses = orjson.loads(value)
                if texts_in({"addresses": addresses}, "addresses") != addresses:
                    raise ValueError("expected a list of strings")
                self.services.options.lookupd_http_address = tuple(addresses)
                self.services.poller.set_lookupds(addresses)
                self.services.poller.poll_soon()
            else:
                raise RequestRefused(400, "INVALID_OPTION")
        except ValueError as error:
            raise RequestRefused(400, "INVALID_VALUE") from error

    def _sees(self, request: Request) -> Callable[[str], bool]:
        return self.services.access.scope(request).sees


def _config_value(request: Request) -> bytes:
    try:
        value = body_of(request, _MOST_CONFIG_BYTES)
    except RequestRefused as refusal:
        raise RequestRefused(413, "INVALID_VALUE") from refusal
    if not value:
        raise RequestRefused(413, "INVALID_VALUE")
    return value
