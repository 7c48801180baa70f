complete -c nsq-to-http -f
complete -c nsq-to-http -l version -d 'Print the version and exit.'
complete -c nsq-to-http -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsq-to-http -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsq-to-http -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsq-to-http -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsq-to-http -l topic -d 'NSQ topic.' -x
complete -c nsq-to-http -l channel -d 'NSQ channel.' -x
complete -c nsq-to-http -l max-in-flight -d 'Maximum number of messages in flight.' -x
complete -c nsq-to-http -l sample -d 'Share of the messages to send, from 0 to 1. The others are finished and not sent.' -x
complete -c nsq-to-http -l nsqd-tcp-address -d 'TCP address (host:port) of an nsqd to consume from (may be given several times).' -x
complete -c nsq-to-http -l lookupd-http-address -d 'HTTP address (host:port) of an nsqlookupd that lists the nsqds of the topic (may be given several times).' -x
complete -c nsq-to-http -l consumer-opt -d 'Option of the consumer as name,value with the names of go-nsq\'s Config, such as tls_v1,true or msg_timeout,30s (may be given several times).' -x
complete -c nsq-to-http -l post -d 'URL that receives each message as the body of a POST (may be given several times).' -x
complete -c nsq-to-http -l get -d 'URL that receives each message in a GET: %s is replaced with the escaped message, %% with a percent sign (may be given several times).' -x
complete -c nsq-to-http -l mode -d 'How to choose an address: round-robin (in turn), hostpool (in turn, skipping failed ones), epsilon-greedy (faster ones more often), all (every address).' -x -a 'round-robin hostpool epsilon-greedy all'
complete -c nsq-to-http -l n -d 'Maximum number of concurrent requests.' -x
complete -c nsq-to-http -l header -d 'Header of requests, as \'name: value\' (may be given several times).' -x
complete -c nsq-to-http -l content-type -d 'The Content-Type of POST requests.' -x
complete -c nsq-to-http -l http-client-connect-timeout -d 'Timeout for connecting to an HTTP server, including the TLS handshake.' -x
complete -c nsq-to-http -l http-client-request-timeout -d 'Timeout for an HTTP response.' -x
complete -c nsq-to-http -l http-client-tls-root-ca-file -d 'Trusted certificate authorities for https:// addresses (PEM file); by default those of the system.' -r -F
complete -c nsq-to-http -l http-client-tls-cert -d 'Client certificate for https:// addresses (PEM file).' -r -F
complete -c nsq-to-http -l http-client-tls-key -d 'Private key of the client certificate (PEM file).' -r -F
complete -c nsq-to-http -l tls-security-level -d 'OpenSSL security level of server and client connections: 0 to 5, or default. Level 0 accepts keys below 2048 bits, SHA-1 signatures, and TLS 1.0 and 1.1.' -x -a 'default 0 1 2 3 4 5'
complete -c nsq-to-http -l status-every -d 'Number of requests between two status lines, for each address and for all; 0 means no status lines.' -x
complete -c nsq-to-http -l log-level -d 'Write log lines of this level and above: debug, info, warn, error, fatal.' -x -a 'debug info warn error fatal'
complete -c nsq-to-http -l log-format -d 'Format of the log on stderr: text (lines as Go\'s NSQ writes them) or json (one object a line).' -x -a 'text json'
complete -c nsq-to-http -l log-prefix -d 'Prefix of every log line.' -x
complete -c nsq-to-http -l help -d 'Show what the flags mean and exit.'
