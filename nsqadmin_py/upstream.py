"""The client of nsqadmin's requests to nsqd and nsqlookupd: its limits, certificates and token."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from pathlib import Path

from nsqadmin_py.address_blocks import AddressBlocks
from nsqadmin_py.options import NsqadminOptions
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.lookup.host import resolve
from nsqd_py.net.addresses import join_address
from nsqd_py.net.http import Url, parse_url
from nsqd_py.net.http.client import MAX_STATS_BYTES, HttpClient, HttpClientTls
from nsqd_py.settings.declaration import BadOptions, bad_options


class TokenRule:
    """The bearer token of `--http-client-token-file`, and the servers that may see it.

    Anybody can register an address with an nsqlookupd, and answer there with another port for HTTPS. A
    certificate of a public authority proves only that he owns the name that he registered. So the token is
    sent only to addresses that the options of nsqadmin name, and over HTTPS to servers with a certificate of
    the cluster's own authority.
    """

    def __init__(self, token: str, addresses: Iterable[str], *, has_own_authority: bool) -> None:
        """`addresses` are `host:port`, or hosts and blocks in CIDR notation, with any port. Raises ValueError.

        has_own_authority  True if HTTPS requests accept only the authorities that the options name
        """
        self._headers = {"Authorization": f"Bearer {token}"}
        self._has_own_authority = has_own_authority
        named = [address.lower() for address in addresses]
        self._blocks = AddressBlocks(address for address in named if "/" in address)
        self._addresses = frozenset(address for address in named if "/" not in address)

    def headers_for(self, url: Url) -> dict[str, str]:
        """Return the headers with the token, or none."""
        host = url.host.lower()
        is_named = (
            not self._addresses.isdisjoint((host, join_address(host, url.port))) or host in self._blocks
        )
        is_proven = url.is_secure and self._has_own_authority
        return self._headers if is_named or is_proven else {}


def make_upstream(options: NsqadminOptions) -> Upstream:
    """Return the client of all requests, with the time-outs and certificates of the options.

    Raises BadOptions.
    """
    client = HttpClient.of(
        options, resolve=resolve, tls=HttpClientTls(options), max_answer_bytes=MAX_STATS_BYTES
    )
    return Upstream(client, headers_for(options))


def headers_for(options: NsqadminOptions) -> Callable[[Url], dict[str, str]]:
    """Return a function that returns the headers for a URL, such as a token. Raises BadOptions."""
    token_file = options.http_client_token_file
    if not token_file:
        return lambda url: {}
    addresses = (*options.lookupd_http_address, *options.nsqd_http_address)
    urls = [parse_url(address if "://" in address else f"http://{address}") for address in addresses]
    named = [join_address(url.host, url.port) for url in urls]
    with bad_options("--http-client-token-host: "):
        return TokenRule(
            _read_token(token_file),
            [*named, *options.http_client_token_host],
            has_own_authority=bool(options.http_client_tls_root_ca_file)
            and not options.http_client_tls_insecure_skip_verify,
        ).headers_for


def _read_token(token_file: str) -> str:
    try:
        data = Path(token_file).read_bytes()
        token = data.removeprefix(BOM_UTF8).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a token"
        raise BadOptions(f"cannot use --http-client-token-file {token_file}: {reason}") from error
    if not token or not token.isprintable() or " " in token:
        raise BadOptions(f"cannot use --http-client-token-file {token_file}: expected one token")
    return token
