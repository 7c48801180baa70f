"""OpenTelemetry for producers and consumers: spans, metrics, and the trace context in an envelope around each body.

    from nsqd_py.otel import Instrumentation

It needs `pip install 'nsqd-py[otel]'`.

instrumentation  `Instrumentation`, which a program calls
producers        producers whose publishes have spans
operation        one publish, or one handled message: its span and its metrics
envelope         the old place of `nsqd_py.protocol.envelope`          pure
"""

from nsqd_py.otel.instrumentation import Instrumentation

__all__ = ["Instrumentation"]
