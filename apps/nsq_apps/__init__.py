"""One small module per command: options in, a running program out."""
