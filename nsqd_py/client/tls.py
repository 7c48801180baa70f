"""TLS of a client: what the options mean, and the engine of one connection."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from nsqd_py.client.options import TLS_VERSIONS, ClientOptions
from nsqd_py.net.tls import StandardEngine, TlsLayer
from nsqd_py.net.tls_level import advised, set_level


class TlsClient:
    """Makes engines that expect `server_name`, a host or an IP address, in the certificate."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._context = context
        self._server_name = server_name

    def engine(self) -> StandardEngine:
        return StandardEngine(self._context, self._server_name)


def tls_layer(options: ClientOptions, server_name: str) -> TlsLayer:
    """For a new connection: renewed files count from the next one on. Raises OSError for files that are no good."""
    return TlsLayer(TlsClient(options.tls_config or client_context(options), server_name))


def client_context(
    options: ClientOptions, context_class: type[ssl.SSLContext] = ssl.SSLContext
) -> ssl.SSLContext:
    """Certificates have to be signed by `tls_root_ca_file`, or whom the system trusts, and to be for the host.

    Raises OSError.
    """
    context = context_class(ssl.PROTOCOL_TLS_CLIENT)
    set_level(context, options.tls_security_level)
    if options.tls_min_version:
        lowest = max(TLS_VERSIONS[options.tls_min_version], ssl.TLSVersion.TLSv1)
        context.minimum_version = ssl.TLSVersion(lowest)
    if options.tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif options.tls_root_ca_file:
        _load(options.tls_root_ca_file, lambda: context.load_verify_locations(cafile=options.tls_root_ca_file))
    else:
        context.load_default_certs()
    if options.tls_cert:
        # With an empty password, a key that needs one fails instead of asking on the terminal.
        files = f"{options.tls_cert} with {options.tls_key}"
        _load(files, lambda: context.load_cert_chain(options.tls_cert, options.tls_key, password=""))
    return context


def _load(files: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as error:  # SSLError is one
        raise OSError(f"cannot use {files}: {advised(error.strerror or error)}") from error
