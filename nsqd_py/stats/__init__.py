"""The figures of an nsqd, collected once and told as JSON, text, statsd and Prometheus."""
