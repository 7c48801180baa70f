"""TLS to nsqlookupds: what `--lookupd-tls` and its files mean."""

from __future__ import annotations

import ssl

from nsqd_py.net.tls_level import set_level, set_lowest_version
from nsqd_py.settings.declaration import Options


def client_context(options: Options, context_class: type[ssl.SSLContext] = ssl.SSLContext) -> ssl.SSLContext | None:
    """The context of all connections to nsqlookupds, None without `--lookupd-tls`. Raises OSError."""
    if not options.lookupd_tls:
        return None
    context = context_class(ssl.PROTOCOL_TLS_CLIENT)
    set_level(context, options.tls_security_level)
    set_lowest_version(context, options.tls_security_level, options.tls_min_version)
    if options.lookupd_tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif options.lookupd_tls_root_ca_file:
        context.load_verify_locations(cafile=options.lookupd_tls_root_ca_file)
    else:
        context.load_default_certs()
    if options.lookupd_tls_cert:
        # With an empty password, a key that needs one fails instead of asking on the terminal.
        context.load_cert_chain(options.lookupd_tls_cert, options.lookupd_tls_key or None, password="")
    return context
