"""A daemon's process: log lines, signals, systemd, threads, back-off, pacing of long work."""
