complete -c nsqlookupd-py -f
complete -c nsqlookupd-py -l version -d 'Print the version and exit.'
complete -c nsqlookupd-py -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsqlookupd-py -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsqlookupd-py -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsqlookupd-py -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsqlookupd-py -l log-level -d 'Write log lines of this level and above: debug, info, warn, error, fatal.' -x -a 'debug info warn error fatal'
complete -c nsqlookupd-py -l log-format -d 'Format of the log on stderr: text (lines as Go\'s NSQ writes them) or json (one object a line).' -x -a 'text json'
complete -c nsqlookupd-py -l log-prefix -d 'Prefix of every log line.' -x
complete -c nsqlookupd-py -l verbose -d 'Deprecated and without effect; use --log-level.'
complete -c nsqlookupd-py -l tcp-address -d 'Address for nsqds: host:port, or the path of a unix socket.' -x
complete -c nsqlookupd-py -l http-address -d 'Address for consumers and tools: host:port, or the path of a unix socket.' -x
complete -c nsqlookupd-py -l broadcast-address -d 'Host name or address of this nsqlookupd\'s HTTP port for nsqds.' -x
complete -c nsqlookupd-py -l inactive-producer-timeout -d 'Time since the last ping of an nsqd after which it is no longer listed.' -x
complete -c nsqlookupd-py -l tombstone-lifetime -d 'Time for which an nsqd is not listed for a topic after it was tombstoned.' -x
complete -c nsqlookupd-py -l max-topics-and-channels -d 'Maximum number of topics and channels in total; 0 means no limit. At the limit, new names of nsqds replace names that no nsqd has.' -x
complete -c nsqlookupd-py -l max-registrations -d 'Maximum number of registrations: topics and channels, each counted once for each nsqd that has it; 0 means no limit.' -x
complete -c nsqlookupd-py -l max-registrations-per-nsqd -d 'Maximum number of topics and channels that one nsqd can register; 0 means no limit.' -x
complete -c nsqlookupd-py -l max-connections -d 'Maximum number of TCP and HTTP connections; 0 means all file descriptors except a reserve for files.' -x
complete -c nsqlookupd-py -l max-connections-per-address -d 'Maximum number of connections from one IP address; 0 means no limit.' -x
complete -c nsqlookupd-py -l handshake-timeout -d 'Timeout for the first four bytes of a TCP connection, which name its protocol; 0s means none.' -x
complete -c nsqlookupd-py -l http-head-timeout -d 'Timeout for the first byte of a request, for its headers, and for its body. The timeout of a body grows by one second with each KiB received. 0s means none.' -x
complete -c nsqlookupd-py -l http-idle-timeout -d 'Time after which an idle HTTP connection is closed; 0s means never. It must be longer than in clients and load balancers, or they will send requests on connections that are being closed.' -x
complete -c nsqlookupd-py -l write-timeout -d 'Time after which a client that does not read is disconnected; 0s means never. TCP clients that do not answer heartbeats are disconnected earlier.' -x
complete -c nsqlookupd-py -l tls-cert -d 'Server certificate (PEM file). Enables TLS on the TCP and HTTP ports.' -r -F
complete -c nsqlookupd-py -l tls-key -d 'Private key of the certificate (PEM file).' -r -F
complete -c nsqlookupd-py -l tls-client-auth-policy -d 'Client certificates: require-verify (signed by --tls-root-ca-file).' -x
complete -c nsqlookupd-py -l tls-root-ca-file -d 'Trusted certificate authorities (PEM file).' -r -F
complete -c nsqlookupd-py -l tls-required -d 'Refuse clients without TLS: true, false, or tcp-https (but accept plain HTTP).'
complete -c nsqlookupd-py -l tls-min-version -d 'Minimum TLS version: tls1.0, tls1.1, tls1.2 or tls1.3.' -x -a 'tls1.0 tls1.1 tls1.2 tls1.3'
complete -c nsqlookupd-py -l tls-security-level -d 'OpenSSL security level of server and client connections: 0 to 5, or default. Level 0 accepts keys below 2048 bits, SHA-1 signatures, and TLS 1.0 and 1.1.' -x -a 'default 0 1 2 3 4 5'
complete -c nsqlookupd-py -l http-auth-file -d 'File with the accounts that may use administrative HTTP paths: lines of htpasswd -B or token:name:sha256. If empty, everyone may.' -r -F
complete -c nsqlookupd-py -l http-allowed-hosts -d 'Host name by which browsers may reach the HTTP port, or a domain with all names in it, such as .example.com (may be given several times). IP addresses, localhost, the host name and the names in other addresses of this server are always allowed. Other programs may use any name.' -x
complete -c nsqlookupd-py -l help -d 'Show what the flags mean and exit.'
