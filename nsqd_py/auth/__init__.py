"""AUTH: what a client may publish and subscribe to.

guard        checks the commands of one client, and renews its permissions
renewals     asks the auth servers again about clients that consume
servers      asks the auth servers over HTTP
permissions  parses the answer of an auth server, and decides               pure
"""
