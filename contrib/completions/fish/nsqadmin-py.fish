complete -c nsqadmin-py -f
complete -c nsqadmin-py -l version -d 'Print the version and exit.'
complete -c nsqadmin-py -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsqadmin-py -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsqadmin-py -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsqadmin-py -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsqadmin-py -l log-level -d 'Write log lines of this level and above: debug, info, warn, error, fatal.' -x -a 'debug info warn error fatal'
complete -c nsqadmin-py -l log-format -d 'Format of the log on stderr: text (lines as Go\'s NSQ writes them) or json (one object a line).' -x -a 'text json'
complete -c nsqadmin-py -l log-prefix -d 'Prefix of every log line.' -x
complete -c nsqadmin-py -l verbose -d 'Deprecated and without effect; use --log-level.'
complete -c nsqadmin-py -l lookupd-http-address -d 'HTTP address (host:port) of an nsqlookupd (may be given several times).' -x
complete -c nsqadmin-py -l nsqd-http-address -d 'HTTP address (host:port) of an nsqd, for clusters without nsqlookupd (may be given several times).' -x
complete -c nsqadmin-py -l poll-interval -d 'Time between two requests to each nsqlookupd and nsqd.' -x
complete -c nsqadmin-py -l history-file -d 'File that keeps the figures of the last day across restarts; if empty, they are kept in memory only.' -r -F
complete -c nsqadmin-py -l http-address -d 'Address of the page and the API: host:port, or the path of a unix socket.' -x
complete -c nsqadmin-py -l base-path -d 'Prefix of all paths, for a proxy that also serves other applications.' -r -F
complete -c nsqadmin-py -l dev-static-dir -d 'Directory that replaces the page, for development: index.html, and files below /static.' -r -F
complete -c nsqadmin-py -l max-connections -d 'Maximum number of HTTP connections; 0 means all file descriptors. Each open page has one.' -x
complete -c nsqadmin-py -l tls-cert -d 'Server certificate (PEM file). The page is then at https://.' -r -F
complete -c nsqadmin-py -l tls-key -d 'Private key of the certificate (PEM file).' -r -F
complete -c nsqadmin-py -l acl-http-header -d 'Header in which an authenticating proxy sends the name of the user.' -x
complete -c nsqadmin-py -l acl-http-header-from -d 'Addresses of the proxies that may send --acl-http-header: a CIDR block, or unix for unix sockets (may be given several times). The header is ignored from other addresses. If not given, the header is accepted from everyone, unless there is an --http-auth-file.' -x
complete -c nsqadmin-py -l admin-user -d 'User who may change things, by the name in --acl-http-header or in --http-auth-file (may be given several times); if not given, every user may.' -x
complete -c nsqadmin-py -l topic-permission -d 'Permission on topics, as PERMISSION TOPICS WHO (may be given several times): view, publish or administer, a topic name or pattern (orders.*), and a user, group:NAME or * for everybody. Once there is one, users other than --admin-user see and change only what these grant.' -x
complete -c nsqadmin-py -l acl-groups-http-header -d 'Header in which the proxy of --acl-http-header sends the groups of the user, separated by commas.' -x
complete -c nsqadmin-py -l http-auth-file -d 'File with the accounts that may use administrative HTTP paths: lines of htpasswd -B or token:name:sha256. If empty, everyone may.' -r -F
complete -c nsqadmin-py -l http-allowed-hosts -d 'Host name by which browsers may reach the HTTP port, or a domain with all names in it, such as .example.com (may be given several times). IP addresses, localhost, the host name and the names in other addresses of this server are always allowed. Other programs may use any name.' -x
complete -c nsqadmin-py -l read-only -d 'Refuse all actions.'
complete -c nsqadmin-py -l allow-config-from-cidr -d 'Addresses that may use /config, as a CIDR block; if empty, all addresses.' -x
complete -c nsqadmin-py -l notification-http-endpoint -d 'URL that receives a POST with JSON for every action.' -x
complete -c nsqadmin-py -l attention-max-depth -d 'Waiting messages of a channel from which on it is listed under Attention; 0: no limit.' -x
complete -c nsqadmin-py -l attention-max-age -d 'Age of the oldest waiting message of a channel from which on it is listed under Attention; 0: no limit.' -x
complete -c nsqadmin-py -l attention-http-endpoint -d 'URL that receives a POST with JSON when a problem has lasted for two polls, and when it is over.' -x
complete -c nsqadmin-py -l http-client-connect-timeout -d 'Timeout for connecting to an HTTP server.' -x
complete -c nsqadmin-py -l http-client-request-timeout -d 'Timeout for an HTTP response.' -x
complete -c nsqadmin-py -l http-client-tls-root-ca-file -d 'Trusted certificate authorities for https:// addresses (PEM file); by default those of the system.' -r -F
complete -c nsqadmin-py -l http-client-tls-cert -d 'Client certificate for https:// addresses (PEM file).' -r -F
complete -c nsqadmin-py -l http-client-tls-key -d 'Private key of the client certificate (PEM file).' -r -F
complete -c nsqadmin-py -l tls-security-level -d 'OpenSSL security level of server and client connections: 0 to 5, or default. Level 0 accepts keys below 2048 bits, SHA-1 signatures, and TLS 1.0 and 1.1.' -x -a 'default 0 1 2 3 4 5'
complete -c nsqadmin-py -l http-client-tls-insecure-skip-verify -d 'Accept any certificate from nsqd and nsqlookupd.'
complete -c nsqadmin-py -l http-client-token-file -d 'File with the bearer token for nsqds and nsqlookupds that have an --http-auth-file. Over plain HTTP it is sent only to --nsqd-http-address, --lookupd-http-address and --http-client-token-host.' -r -F
complete -c nsqadmin-py -l http-client-token-host -d 'host:port of an nsqd, found by nsqlookupds, that receives the token over plain HTTP; or a host, IP address or CIDR block, with all its ports (may be given several times).' -x
complete -c nsqadmin-py -l client-opt -d 'Option of the TCP connections that move dead letters, as name,value with the names of go-nsq\'s Config, such as tls_v1,true or auth_secret,... (may be given several times).' -x
complete -c nsqadmin-py -l graphite-url -d 'URL of a Graphite server with the metrics that nsqd sends to statsd.' -x
complete -c nsqadmin-py -l proxy-graphite -d 'Forward requests for /render to Graphite.'
complete -c nsqadmin-py -l statsd-counter-format -d 'Format of the names that statsd gives to counters; empty if it does not change them.' -x
complete -c nsqadmin-py -l statsd-gauge-format -d 'Format of the names that statsd gives to gauges; empty if it does not change them.' -x
complete -c nsqadmin-py -l statsd-prefix -d 'Prefix of nsqd\'s metrics (%s is the host); the same as in nsqd.' -x
complete -c nsqadmin-py -l statsd-interval -d 'Time between two reports of nsqd to statsd; the same as in nsqd.' -x
complete -c nsqadmin-py -l help -d 'Show what the flags mean and exit.'
