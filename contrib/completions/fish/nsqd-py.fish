complete -c nsqd-py -f
complete -c nsqd-py -l version -d 'Print the version and exit.'
complete -c nsqd-py -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsqd-py -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsqd-py -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsqd-py -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsqd-py -l log-level -d 'Write log lines of this level and above: debug, info, warn, error, fatal.' -x -a 'debug info warn error fatal'
complete -c nsqd-py -l log-format -d 'Format of the log on stderr: text (lines as Go\'s NSQ writes them) or json (one object a line).' -x -a 'text json'
complete -c nsqd-py -l log-prefix -d 'Prefix of every log line.' -x
complete -c nsqd-py -l node-id -d 'Number of this node in [0,1024), part of every message id. It must be different for each nsqd of a cluster.' -x
complete -c nsqd-py -l drain-timeout -d 'Maximum time to deliver the backlog after SIGUSR1 or POST /drain, before nsqd exits; 0s means no limit.' -x
complete -c nsqd-py -l verbose -d 'Deprecated and without effect; use --log-level.'
complete -c nsqd-py -l worker-id -d 'Deprecated and without effect; use --node-id.'
complete -c nsqd-py -l tcp-address -d 'Address for TCP clients: host:port, or the path of a unix socket.' -x
complete -c nsqd-py -l http-address -d 'Address for HTTP clients: host:port, or the path of a unix socket.' -x
complete -c nsqd-py -l https-address -d 'Address for HTTPS clients: host:port.' -x
complete -c nsqd-py -l unix-socket -d 'Unix socket for TCP clients, in addition to --tcp-address.' -x
complete -c nsqd-py -l http-unix-socket -d 'Unix socket for HTTP clients, in addition to --http-address.' -x
complete -c nsqd-py -l broadcast-address -d 'Host name or address of this nsqd for other machines, registered with nsqlookupd.' -x
complete -c nsqd-py -l broadcast-tcp-port -d 'TCP port of this nsqd for other machines; 0 means the port of --tcp-address.' -x
complete -c nsqd-py -l broadcast-http-port -d 'HTTP port of this nsqd for other machines; 0 means the port of --http-address.' -x
complete -c nsqd-py -l msg-timeout -d 'Time after which a message that is not finished is requeued, unless the consumer asks for another.' -x
complete -c nsqd-py -l max-msg-timeout -d 'Maximum time in flight of one delivery, also if the consumer extends it with TOUCH.' -x
complete -c nsqd-py -l max-msg-size -d 'Maximum size of a message in bytes.' -x
complete -c nsqd-py -l max-body-size -d 'Maximum size in bytes of the body of a command, such as MPUB.' -x
complete -c nsqd-py -l max-req-timeout -d 'Maximum delay of a requeue.' -x
complete -c nsqd-py -l max-defer-timeout -d 'Maximum delay of a deferred publish; 0s means the value of --max-req-timeout.' -x
complete -c nsqd-py -l max-attempts -d 'Number of attempts after which a message that is not finished is moved to --dead-letter-topic; 0 means no limit. With topic=, for topics with that name or pattern (`orders.*=5`; may be given several times).' -x
complete -c nsqd-py -l dead-letter-topic -d 'Topic for messages after --max-attempts attempts. By topic as --max-attempts.' -x
complete -c nsqd-py -l message-ttl -d 'Time to live: a message that is not finished is dropped at this age, counted from the time when it is due. 0s means never. By topic as --max-attempts.' -x
complete -c nsqd-py -l data-path -d 'Directory of the message logs; by default the current directory.' -r -F
complete -c nsqd-py -l mem-queue-size -d 'Number of messages of each topic that are kept in memory, in addition to the log.' -x
complete -c nsqd-py -l mem-queue-bytes -d 'Memory in bytes for the messages of all topics and the buffers of connections. Beyond it, messages are read from the log, and ephemeral topics drop the newest messages.' -x
complete -c nsqd-py -l max-bytes-per-file -d 'Size in bytes at which a log continues in a new file.' -r -F
complete -c nsqd-py -l sync-every -d 'Number of messages between two fsyncs of a log. With 1, a publish is answered after its fsync.' -x
complete -c nsqd-py -l sync-timeout -d 'Maximum time from a write to a log to its fsync.' -x
complete -c nsqd-py -l retention-time -d 'Time for which finished messages are kept, so that channels can go back to them; 0s means not at all. With topic=, for topics with that name or pattern (`logs.*=24h`; may be given several times).' -x
complete -c nsqd-py -l retention-bytes -d 'Bytes of the newest messages that are kept after they are finished; 0 means none. By topic as --retention-time.' -x
complete -c nsqd-py -l max-topic-bytes -d 'Maximum size in bytes of the log of a topic; beyond it, publishes fail. 0 means no limit. By topic as --retention-time.' -x
complete -c nsqd-py -l max-disk-bytes -d 'Maximum size in bytes of all logs; beyond it, publishes fail. 0 means no limit.' -x
complete -c nsqd-py -l min-free-disk-bytes -d 'Bytes to leave free on the disk; below it, publishes fail. Consumers continue, and their progress is written.' -x
complete -c nsqd-py -l queue-scan-selection-count -d 'Number of channels in one scan for overdue messages. (accepted for compatibility, without effect: one timer serves all deadlines)' -x
complete -c nsqd-py -l queue-scan-worker-pool-max -d 'Number of workers that scan for overdue messages. (accepted for compatibility, without effect: one timer serves all deadlines)' -x
complete -c nsqd-py -l max-heartbeat-interval -d 'Maximum heartbeat interval that a client may request.' -x
complete -c nsqd-py -l max-rdy-count -d 'Maximum RDY of a consumer.' -x
complete -c nsqd-py -l max-output-buffer-size -d 'Maximum output buffer in bytes that a client may request.' -x
complete -c nsqd-py -l max-output-buffer-timeout -d 'Maximum time in the output buffer that a client may request.' -x
complete -c nsqd-py -l min-output-buffer-timeout -d 'Minimum time in the output buffer that a client may request.' -x
complete -c nsqd-py -l output-buffer-timeout -d 'Maximum time that output waits in a buffer, unless the client requests another.' -x
complete -c nsqd-py -l max-channel-consumers -d 'Maximum number of consumers of a channel on this nsqd; 0 means no limit.' -x
complete -c nsqd-py -l max-topics -d 'Maximum number of topics, including ephemeral ones; 0 means no limit. Beyond it, no topic is created. Topics on disk are always loaded.' -x
complete -c nsqd-py -l max-new-topics-per-second -d 'Number of topics and channels per second that the clients of one address create, after 100 times as many at once; beyond it, they wait. 0 means no limit.' -x
complete -c nsqd-py -l max-channels-per-topic -d 'Maximum number of channels of a topic, including ephemeral ones; 0 means no limit.' -x
complete -c nsqd-py -l max-connections -d 'Maximum number of TCP and HTTP connections; 0 means all file descriptors except a reserve for files.' -x
complete -c nsqd-py -l max-connections-per-address -d 'Maximum number of connections from one IP address; 0 means no limit.' -x
complete -c nsqd-py -l handshake-timeout -d 'Timeout for the first four bytes of a TCP connection, which name its protocol; 0s means none.' -x
complete -c nsqd-py -l http-head-timeout -d 'Timeout for the first byte of a request, for its headers, and for its body. The timeout of a body grows by one second with each KiB received. 0s means none.' -x
complete -c nsqd-py -l http-idle-timeout -d 'Time after which an idle HTTP connection is closed; 0s means never. It must be longer than in clients and load balancers, or they will send requests on connections that are being closed.' -x
complete -c nsqd-py -l write-timeout -d 'Time after which a client that does not read is disconnected; 0s means never. TCP clients that do not answer heartbeats are disconnected earlier.' -x
complete -c nsqd-py -l lookupd-tcp-address -d 'TCP address of an nsqlookupd to register with (may be given several times).' -x
complete -c nsqd-py -l lookupd-tls -d 'Use TLS to nsqlookupds, on their TCP and HTTP ports.'
complete -c nsqd-py -l lookupd-tls-root-ca-file -d 'Certificate authorities that sign the certificates of nsqlookupds (PEM file); by default those of the system.' -r -F
complete -c nsqd-py -l lookupd-tls-cert -d 'Client certificate for nsqlookupds (PEM file).' -r -F
complete -c nsqd-py -l lookupd-tls-key -d 'Private key of --lookupd-tls-cert (PEM file); not needed if that file contains the key.' -r -F
complete -c nsqd-py -l lookupd-tls-insecure-skip-verify -d 'Accept any certificate from nsqlookupds. The connection is encrypted, but the server is not verified.'
complete -c nsqd-py -l auth-http-address -d 'Auth server that decides about the permissions of clients: host:port (with the path /auth) or a URL (may be given several times).' -x
complete -c nsqd-py -l auth-http-request-method -d 'HTTP method of requests to auth servers: get or post.' -x
complete -c nsqd-py -l http-client-connect-timeout -d 'Timeout for connecting to an auth server or nsqlookupd.' -x
complete -c nsqd-py -l http-client-request-timeout -d 'Timeout for a response of an auth server or nsqlookupd.' -x
complete -c nsqd-py -l topology-region -d 'Region of this nsqd, which contains several zones; sent to nsqlookupd and clients.' -x
complete -c nsqd-py -l topology-zone -d 'Zone of this nsqd, a part of the network that fails as one; sent to nsqlookupd and clients.' -x
complete -c nsqd-py -l enable-experiment -d 'Enable an experiment ("topology-aware-consumption": serve nearer consumers first; may be given several times).' -x
complete -c nsqd-py -l tls-cert -d 'Server certificate (PEM file). Enables TLS.' -r -F
complete -c nsqd-py -l tls-key -d 'Private key of the certificate (PEM file).' -r -F
complete -c nsqd-py -l tls-client-auth-policy -d 'Client certificates: require (any certificate) or require-verify (signed by --tls-root-ca-file).' -x
complete -c nsqd-py -l tls-root-ca-file -d 'Trusted certificate authorities (PEM file).' -r -F
complete -c nsqd-py -l tls-required -d 'Refuse clients without TLS: true, false, or tcp-https (but accept plain HTTP).'
complete -c nsqd-py -l tls-min-version -d 'Minimum TLS version: tls1.0, tls1.1, tls1.2 or tls1.3.' -x -a 'tls1.0 tls1.1 tls1.2 tls1.3'
complete -c nsqd-py -l tls-security-level -d 'OpenSSL security level of server and client connections: 0 to 5, or default. Level 0 accepts keys below 2048 bits, SHA-1 signatures, and TLS 1.0 and 1.1.' -x -a 'default 0 1 2 3 4 5'
complete -c nsqd-py -l http-auth-file -d 'File with the accounts that may use administrative HTTP paths: lines of htpasswd -B or token:name:sha256. If empty, everyone may.' -r -F
complete -c nsqd-py -l http-allowed-hosts -d 'Host name by which browsers may reach the HTTP port, or a domain with all names in it, such as .example.com (may be given several times). IP addresses, localhost, the host name and the names in other addresses of this server are always allowed. Other programs may use any name.' -x
complete -c nsqd-py -l deflate -d 'Allow deflate compression.'
complete -c nsqd-py -l max-deflate-level -d 'Maximum deflate level that a client may request, 1 to 9. Higher levels take more processor time.' -x
complete -c nsqd-py -l snappy -d 'Allow snappy compression.'
complete -c nsqd-py -l statsd-address -d 'UDP address (host:port) of a statsd server that receives metrics.' -x
complete -c nsqd-py -l statsd-interval -d 'Time between two reports to statsd.' -x
complete -c nsqd-py -l statsd-mem-stats -d 'Include memory and garbage collection in the reports to statsd.'
complete -c nsqd-py -l statsd-prefix -d 'Prefix of the names of metrics; %s stands for the address of this nsqd.' -x
complete -c nsqd-py -l statsd-udp-packet-size -d 'Maximum size of statsd packets in bytes.' -x
complete -c nsqd-py -l statsd-exclude-ephemeral -d 'Exclude ephemeral topics and channels from the reports to statsd.'
complete -c nsqd-py -l e2e-processing-latency-percentile -d 'Percentiles, in (0,1], of the time from publish to finish (may be given several times).' -x
complete -c nsqd-py -l e2e-processing-latency-window-time -d 'Time span that the percentiles cover.' -x
complete -c nsqd-py -l standby-of -d 'TCP address (host:port) of a primary nsqd. This nsqd then keeps a copy of its messages, and serves no clients until it is promoted.' -x
complete -c nsqd-py -l promote -d 'Promote the standby that --data-path belongs to: start as a primary with its messages.'
complete -c nsqd-py -l accept-standbys -d 'Let the other nsqds of the group (--standby-secret-file) follow this one. They get all messages.'
complete -c nsqd-py -l standby-acks -d 'Number of standbys that must have a message before its publisher gets OK; 0 means that none must. Above 0, standbys are accepted.' -x
complete -c nsqd-py -l standby-timeout -d 'Maximum time that a publisher waits for --standby-acks standbys.' -x
complete -c nsqd-py -l standby-on-timeout -d 'After --standby-timeout: `refuse` the publish, or go on `alone`, without standbys, until they are back.' -x
complete -c nsqd-py -l lease -d 'Lease of etcd that decides which nsqd is the primary, such as etcd://127.0.0.1:2379/orders; its holder serves, all others are its standbys.' -x
complete -c nsqd-py -l lease-password-file -d 'File with the password of the user in --lease (etcd://user@...).' -r -F
complete -c nsqd-py -l lease-ttl -d 'Time to live of --lease, at least 2s: after the primary is gone, a standby takes its place within about this time.' -x
complete -c nsqd-py -l lease-tls-root-ca-file -d 'Certificate authorities that sign the certificate of the lease\'s store (PEM file); by default those of the system.' -r -F
complete -c nsqd-py -l lease-tls-cert -d 'Client certificate for the lease\'s store (PEM file).' -r -F
complete -c nsqd-py -l lease-tls-key -d 'Private key of --lease-tls-cert (PEM file); not needed if that file contains the key.' -r -F
complete -c nsqd-py -l standby-tls -d 'Use TLS to the primary.'
complete -c nsqd-py -l standby-tls-root-ca-file -d 'Certificate authorities that sign the certificate of the primary (PEM file); by default those of the system.' -r -F
complete -c nsqd-py -l standby-tls-cert -d 'Client certificate for the primary (PEM file).' -r -F
complete -c nsqd-py -l standby-tls-key -d 'Private key of --standby-tls-cert (PEM file); not needed if that file contains the key.' -r -F
complete -c nsqd-py -l standby-tls-insecure-skip-verify -d 'Accept any certificate from the primary. The connection is encrypted, but the server is not verified.'
complete -c nsqd-py -l standby-secret-file -d 'File with the secret of the group: only nsqds that know it may follow, fence and be followed by this one. The first line proves membership, all lines are accepted. It may change while nsqd runs.' -r -F
complete -c nsqd-py -l standby-tls-allowed-names -d 'Names in the certificates of the group (subject alternative or common name): only nsqds with one of them may follow, fence and be followed by this one. It needs --standby-tls-cert and --tls-client-auth-policy=require-verify (may be given several times).' -x
complete -c nsqd-py -l backup-to -d 'Copy all messages of the running nsqd at --standby-of to this new directory, or archive if the name ends in .tar.zst, and exit with 0 if the backup is complete. That nsqd needs --accept-standbys; --standby-secret-file and --standby-tls-... are those of a standby.' -r -F
complete -c nsqd-py -l restore-from -d 'Write the messages of this backup to --data-path, a new or empty directory, and exit.' -r -F
complete -c nsqd-py -l check-data -d 'Report the contents of this data directory and any damage, and exit with 0 if there is none, with 1 if there is. No nsqd may be using the directory.' -r -F
complete -c nsqd-py -l repair -d 'With --check-data: copy damaged data to the subdirectory `damaged`, and repair the files.'
complete -c nsqd-py -l check-format -d 'Format of the report of --check-data: text or json.' -x -a 'text json'
complete -c nsqd-py -l export-to-go -d 'Write the topics, channels and unfinished messages of --data-path, which no nsqd may be using, to this new directory as files of Go\'s nsqd v1.3.0, with its --max-bytes-per-file and --max-msg-size, and exit.' -r -F
complete -c nsqd-py -l help -d 'Show what the flags mean and exit.'
