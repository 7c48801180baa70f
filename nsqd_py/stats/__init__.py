"""Statistics of an nsqd, collected once and reported in four formats.

metrics     the metrics of topics, channels and logs, with their names in /metrics, /stats and statsd
metric      a metric, and the functions that declare one
collect     statistics of topics, channels and clients; /stats as JSON
text        /stats as text; /health and /ping
prometheus  /metrics
statsd      reports over UDP
"""
