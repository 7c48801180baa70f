"""The figures of an nsqd, collected once and reported in four formats.

collect        figures of topics, channels and clients; /stats as JSON
text           /stats as text; /health and /ping
prometheus     /metrics
statsd         reports over UDP
statsd_prefix  the prefix of statsd's keys                                  pure
"""
