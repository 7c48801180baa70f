"""Sockets without meaning: what all daemons and clients need to send and receive bytes.

addresses            host:port as text: split, joined, compared               pure
listening            the listeners of a daemon
server               a listening socket: accepts connections
transport            a socket that never blocks, and its output buffer
loop_iteration       the end of an event-loop iteration, where batched work is done
early_answers        answers sent before the write they depend on is known to hold
backlog              input that takes long is handled in slices
limits               limits on connections and time-outs

layers               the interface of what lies between socket and protocol
tls                  TLS as such a layer
tls_any_certificate  TLS that accepts any client certificate
tls_context          TLS contexts of clients, the security level of OpenSSL
tls_options          the TLS settings of servers and of HTTP clients
certificates         reloads a server's certificate when its files change
compression          snappy and deflate as layers

foreign_json         parses JSON of other machines, with a limit on memory
yielding_file        lets other greenlets run while a peer sends without pause

http                 server and client for HTTP
"""
