"""Sockets without meaning: connections, the end of a loop iteration, TLS, compression, listeners, limits, HTTP."""
