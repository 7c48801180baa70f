"""nsqd's HTTP paths: publishing, administration, figures, and reading the log."""
