"""What a client may publish and subscribe to, as an auth server says that is asked with the client's secret."""
