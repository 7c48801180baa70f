"""nsqadmin as a child process. NSQADMIN_COMMAND replaces the program under test, as NSQD_COMMAND does for nsqd."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.support.network import LOOPBACK
from tests.support.nsqd_process import HTTPAnswer, ServerProcess, command_of, wait_until

MakeNsqadmin = Callable[..., "NsqadminProcess"]


def nsqadmin_command() -> list[str]:
    return command_of("nsqadmin")


class NsqadminProcess(ServerProcess):
    """One nsqadmin, on a free port."""

    listens_for = ("HTTP",)

    def __init__(self, log_path: Path, *flags: str, command: list[str] | None = None) -> None:
        super().__init__([], (), log_path)
        self._command = [*(command or nsqadmin_command()), f"--http-address={LOOPBACK.address}:0", *flags]

    # --- asking it

    def get(self, path: str, **headers: str) -> Any:
        """JSON of an answer of 200."""
        answer = self.http(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        assert answer.status == 200, (path, answer)
        return answer.json()

    def token(self) -> str:
        return self.get("/api/v2/session")["token"]

    def act(self, action: str, topic: str, **more: Any) -> HTTPAnswer:
        """An action as the page does it."""
        body = json.dumps({"action": action, "topic": topic, **more}).encode()
        return self.http("POST", "/api/v2/actions", body, {"X-Nsqadmin-Token": self.token()})

    def wait_for_topic(self, topic: str, **statistics: Any) -> dict[str, Any]:
        """The topic in our API, when all `statistics` (as depth=3) are as given."""

        def seen() -> dict[str, Any] | None:
            answer = self.http("GET", f"/api/v2/topics/{topic}")
            fits = answer.status == 200 and answer.json().items() >= statistics.items()
            return answer.json() if fits else None

        return wait_until(seen, what=f"{topic} with {statistics}")

    @contextmanager
    def events(self, query: str, headers: dict[str, str] | None = None) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a view: `event`, `id` and what is in them."""
        connection = http.client.HTTPConnection(self.host.address, self.http_port, timeout=40)
        with closing(connection):
            connection.request("GET", f"/api/v2/events?{query}", headers=headers or {})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            yield _events_in(response)


def _events_in(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    fields: dict[str, str] = {}
    for raw in iter(response.readline, b""):
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "data" in fields:
                yield {"event": fields.get("event"), "id": fields.get("id"), **json.loads(fields["data"])}
            fields = {}
