"""The admin client of threads: it sends a login or a token over TLS only, and needs no gevent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nsqd_py.client.blocking.http_requests import NoAnswer, login_header, request
from nsqd_py.client.lookup import lookup_headers
from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.admin_client import AdminClient, Answer, shown_address
from nsqd_py.net.addresses import join_address
from nsqd_py.net.http import BadStatus, HttpClientError, Url, split_url

# nsqd answers /topic/read with whole batches, of up to --max-body-size.
_MOST_ANSWER_BYTES = 256 * 1024 * 1024
_MOST_INFO_BYTES = 256 * 1024
_OK = 200
_UNAUTHORIZED = 401


@dataclass(frozen=True)
class HttpAccess(AdminClient):
    """The admin client of threads: its settings, and who may see its secrets.

    login      the `user:password` of an address, or empty
    named      the servers that the user has named, as `servers_in` returns them
    timeout_s  of each read of an answer; `answer_s` of all of it
    """

    client: ClientOptions
    login: str = field(default="", repr=False)
    named: frozenset[str] = frozenset()
    timeout_s: float = 30.0
    answer_s: float = 120.0
    max_answer_bytes: int = _MOST_ANSWER_BYTES

    parse_url = staticmethod(split_url)  # a host that no resolver takes is an error of the connection

    def fetch(self, url: Url, answer: Answer) -> bytes:
        return self._request("GET", url, answer)

    def send(self, method: str, address: str, path: str, query: Mapping[str, str]) -> bytes:
        """Return the answer to a request without a body. Raises UpstreamError."""

        def send(url: Url) -> bytes:
            return self._request(method, url, Answer())

        return self.exchange(method, address, path, query, send)

    def _request(self, method: str, url: Url, answer: Answer) -> bytes:
        """The token or login is sent over TLS only, to servers that may see it."""
        headers = {}
        if url.is_secure:
            headers = self.headers_for(join_address(url.host, url.port))
        limits = self.answer_s, self.max_answer_bytes
        try:
            whole = f"{url.origin}{url.path}"
            received = request(method, whole, headers, self.client, *limits, step_s=self.timeout_s)
        except NoAnswer as error:
            raise HttpClientError(str(error)) from error
        answer.note_headers(received.headers)
        if received.status != _OK:
            raise BadStatus(received.status, received.reason, received.body)
        return received.body

    def https_instead(self, address: str, url: Url, refusal: BadStatus) -> Url | None:
        """Return the URL at the HTTPS port of a server that refused a plain request. None if an address is a URL: it stays so.

        A refusal without TLS names the port; after one without a token, /info does.
        """
        if "://" in address:
            return None
        if refusal.status != _UNAUTHORIZED:
            return refusal.https_instead(url)
        brief = replace(self, max_answer_bytes=_MOST_INFO_BYTES)
        try:
            info = brief.fetch(replace(url, path="/info"), Answer())
        except BadStatus as refused:
            return refused.https_instead(url)
        return url.at_https_port(info)

    def may_see_secrets(self, server: str) -> bool:
        """True if the login or token may be sent over TLS to a server (`host:port`).

        Anybody can register with an nsqlookupd, and answer with another port for HTTPS. A certificate of a public
        authority proves only that he owns the name that he registered.
        """
        has_own_authority = bool(self.client.tls_root_ca_file) and not self.client.tls_insecure_skip_verify
        return has_own_authority or server.lower() in self.named

    def headers_for(self, server: str) -> dict[str, str]:
        """Return the headers of a request over TLS: with the login, or else the token, if the server may see it."""
        headers = lookup_headers(self.client) | login_header(self.login)
        if not self.may_see_secrets(server):
            headers.pop("Authorization", None)
        return headers

    def why_unauthorized(self, server: str) -> str:
        """Return why a server that wants a login or token did not get it; empty if it did, or there is none."""
        if self.may_see_secrets(server) or not (self.login or self.client.auth_secret):
            return ""
        return (
            ". Logins and tokens are sent over TLS to addresses that options name as https://host:port, and to servers with "
            "a certificate of tls_root_ca_file"
        )


def servers_in(addresses: Iterable[str]) -> frozenset[str]:
    """Return addresses without logins, such as https://a:4152, as `HttpAccess.named` has them."""
    return frozenset(shown_address(address).lower() for address in addresses)
