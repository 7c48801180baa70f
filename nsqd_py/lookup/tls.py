"""TLS to nsqlookupd, as --lookupd-tls and its files set it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from nsqd_py.net import tls_context

if TYPE_CHECKING:
    from nsqd_py.options import NsqdOptions


def client_context(
    options: NsqdOptions, context_class: type[ssl.SSLContext] = ssl.SSLContext
) -> ssl.SSLContext | None:
    """Return the context of all connections to nsqlookupd; None without --lookupd-tls. Raises OSError."""
    if not options.lookupd_tls:
        return None
    context: ssl.SSLContext = tls_context.client_context(
        context_class,
        root_ca_file=options.lookupd_tls_root_ca_file,
        cert_file=options.lookupd_tls_cert,
        key_file=options.lookupd_tls_key,
        level=options.tls_security_level,
        lowest_version=options.tls_min_version,
        verifies=not options.lookupd_tls_insecure_skip_verify,
    )
    return context
