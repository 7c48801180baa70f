"""The TLS of a client's connection."""

from __future__ import annotations

import ssl

from nsqd_py.client.options import TLS_VERSIONS, ClientOptions
from nsqd_py.net import tls_context
from nsqd_py.net.tls import TlsLayer


def tls_layer(options: ClientOptions, server_name: str) -> TlsLayer:
    """Return the layer of a new connection. It reads the files again. Raises OSError if they cannot be used."""
    return TlsLayer(options.tls_config or client_context(options), server_name)


def client_context(options: ClientOptions, context_class: type[ssl.SSLContext] = ssl.SSLContext) -> ssl.SSLContext:
    """Return the context of connections with these options. Raises OSError for files that cannot be used."""
    context: ssl.SSLContext = tls_context.client_context(
        context_class,
        root_ca_file=options.tls_root_ca_file,
        cert_file=options.tls_cert,
        key_file=options.tls_key,
        level=options.tls_security_level,
        verifies=not options.tls_insecure_skip_verify,
    )
    if options.tls_min_version:
        lowest = max(TLS_VERSIONS[options.tls_min_version], ssl.TLSVersion.TLSv1)
        context.minimum_version = ssl.TLSVersion(lowest)
    return context
