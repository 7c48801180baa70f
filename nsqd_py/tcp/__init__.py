"""A client's connection of the NSQ protocol, and the handlers of its commands."""
