"""AUTH: what a client may publish and subscribe to.

guard        checks the commands of one client, and renews its permissions
servers      asks the auth servers over HTTP, and again about clients that consume
permissions  parses the answer of an auth server, and decides               pure
"""
