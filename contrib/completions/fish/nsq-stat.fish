complete -c nsq-stat -f
complete -c nsq-stat -l version -d 'Print the version and exit.'
complete -c nsq-stat -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsq-stat -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsq-stat -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsq-stat -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsq-stat -l nsqd-http-address -d 'HTTP address (host:port) of an nsqd (may be given several times); https://host:port for TLS.' -x
complete -c nsq-stat -l lookupd-http-address -d 'HTTP address (host:port) of an nsqlookupd that lists the nsqds (may be given several times); https://host:port for TLS.' -x
complete -c nsq-stat -l http-client-connect-timeout -d 'Timeout for connecting to an HTTP server.' -x
complete -c nsq-stat -l http-client-request-timeout -d 'Timeout for an HTTP response.' -x
complete -c nsq-stat -l http-client-tls-root-ca-file -d 'Trusted certificate authorities for https:// addresses (PEM file); by default those of the system.' -r -F
complete -c nsq-stat -l http-client-tls-cert -d 'Client certificate for https:// addresses (PEM file).' -r -F
complete -c nsq-stat -l http-client-tls-key -d 'Private key of the client certificate (PEM file).' -r -F
complete -c nsq-stat -l tls-security-level -d 'OpenSSL security level of server and client connections: 0 to 5, or default. Level 0 accepts keys below 2048 bits, SHA-1 signatures, and TLS 1.0 and 1.1.' -x -a 'default 0 1 2 3 4 5'
complete -c nsq-stat -l topic -d 'NSQ topic; by default all.' -x
complete -c nsq-stat -l channel -d 'NSQ channel; by default all.' -x
complete -c nsq-stat -l filter -d 'Show only topics and channels that match (may be given several times). A filter is a glob for the topic or the channel (orders*), a glob for both (*/archive), or /a regular expression/.' -x
complete -c nsq-stat -l sort -d 'Column to sort by, largest first; with a - before it, smallest first: topic, channel, in, out, depth, growth, in-flight, deferred, requeued, timed-out, clients, disk, messages, age, drain.' -x
complete -c nsq-stat -l per-node -d 'Show a row for each nsqd instead of the sum.'
complete -c nsq-stat -l standbys -d 'Report primaries and their standbys instead of topics and channels.'
complete -c nsq-stat -l max-standby-lag -d 'Lag from which a standby counts as a failure: it is red, and --once ends with exit status 1. A standby that is disconnected or incomplete, and a primary that lacks standbys, always count.' -x
complete -c nsq-stat -l interval -d 'Time between two reports.' -x
complete -c nsq-stat -l count -d 'Number of reports, after which nsq-stat exits.' -x
complete -c nsq-stat -l once -d 'Report the current state and exit. There are no rates then; --count=1 shows rates.'
complete -c nsq-stat -l check -d 'Like --once, and report on standard error, with exit status 1, each topic or channel that is paused, has waiting messages and no consumer, or is listed by an nsqlookupd and on no nsqd; and each server that does not answer. --topic, --channel, --filter and --per-node choose what is checked.'
complete -c nsq-stat -l format -d 'Format of reports: go (the lines of Go\'s nsq_stat), table, csv, or json (one object a line).' -x -a 'go table csv json'
complete -c nsq-stat -l help -d 'Show what the flags mean and exit.'
