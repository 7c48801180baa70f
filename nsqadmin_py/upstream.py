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
from nsqd_py.net.http.client import MAX_STATS_BYTES, HttpClient, http_client_tls
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import stamp_of
from nsqd_py.settings.declaration import BadOptions, bad_options


class TokenFile:
    """The bearer token of `--http-client-token-file`, also when its file has changed."""

    def __init__(self, path: str, warn: Callable[[str], object] | None = None) -> None:
        """Read the file; `warn` logs a later one that has no token. Raises BadOptions."""
        self._path = path
        self._warn = warn
        self._stamp = stamp_of(path)
        self._token = _read_token(path)

    def headers(self) -> dict[str, str]:
        """Return the headers with the token. If its new file cannot be used, it stays the one before."""
        stamp = stamp_of(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            self._read_again()
        return {"Authorization": f"Bearer {self._token}"}

    def _read_again(self) -> None:
        try:
            self._token = _read_token(self._path)
        except BadOptions as error:
            if self._warn is not None:
                self._warn(f"NSQADMIN: {error}; the token stays the one before")


class TokenRule:
    """The servers that may see the bearer token of `--http-client-token-file`.

    Anybody can register an address with an nsqlookupd, and answer there with another port for HTTPS. A
    certificate of a public authority proves only that he owns the name that he registered. So the token is
    sent only to addresses that the options of nsqadmin name, and over HTTPS to servers with a certificate of
    the cluster's own authority.
    """

    def __init__(self, addresses: Iterable[str], *, has_own_authority: bool) -> None:
        """`addresses` are `host:port`, or hosts and blocks in CIDR notation, with any port. Raises ValueError.

        has_own_authority  True if HTTPS requests accept only the authorities that the options name
        """
        self._has_own_authority = has_own_authority
        named = [address.lower() for address in addresses]
        self._blocks = AddressBlocks(address for address in named if "/" in address)
        self._addresses = frozenset(address for address in named if "/" not in address)

    def may_see_it(self, url: Url) -> bool:
        """True if a request to this URL has the token."""
        host = url.host.lower()
        is_named = (
            not self._addresses.isdisjoint((host, join_address(host, url.port))) or host in self._blocks
        )
        is_proven = url.is_secure and self._has_own_authority
        return is_named or is_proven


def make_upstream(options: NsqadminOptions, log: Log) -> Upstream:
    """Return the client of all requests, with the time-outs and certificates of the options.

    Raises BadOptions.
    """
    client = HttpClient.of(
        options, resolve=resolve, tls=http_client_tls(options, log.error), max_answer_bytes=MAX_STATS_BYTES
    )
    return Upstream(client, headers_for(options, log.error))


def headers_for(
    options: NsqadminOptions, warn: Callable[[str], object] | None = None
) -> Callable[[Url], dict[str, str]]:
    """Return a function that returns the headers for a URL, such as a token. Raises BadOptions."""
    token_file = options.http_client_token_file
    if not token_file:
        return lambda url: {}
    addresses = (*options.lookupd_http_address, *options.nsqd_http_address)
    urls = [parse_url(address if "://" in address else f"http://{address}") for address in addresses]
    named = [join_address(url.host, url.port) for url in urls]
    token = TokenFile(token_file, warn)
    with bad_options("--http-client-token-host: "):
        rule = TokenRule(
            [*named, *options.http_client_token_host],
            has_own_authority=bool(options.http_client_tls_root_ca_file)
            and not options.http_client_tls_insecure_skip_verify,
        )
    return lambda url: token.headers() if rule.may_see_it(url) else {}


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
