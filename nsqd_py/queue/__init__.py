"""The heart: topics, channels, and which message goes to which consumer. Nothing here opens a socket or a file."""
