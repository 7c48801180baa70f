complete -c nsq-tail -f
complete -c nsq-tail -l version -d 'Print the version and exit.'
complete -c nsq-tail -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsq-tail -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsq-tail -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsq-tail -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsq-tail -l nsqd-tcp-address -d 'TCP address (host:port) of an nsqd to consume from (may be given several times).' -x
complete -c nsq-tail -l lookupd-http-address -d 'HTTP address (host:port) of an nsqlookupd that lists the nsqds of the topic (may be given several times).' -x
complete -c nsq-tail -l topic -d 'NSQ topic (may be given several times).' -x
complete -c nsq-tail -l channel -d 'NSQ channel. The default is an ephemeral channel for this run, which takes no messages from other consumers.' -x
complete -c nsq-tail -l since -d 'Show the messages of this time too, such as 10m, and go on with new ones. They are read from the logs of nsqd-py, as far as it keeps them (--retention-time of nsqd), without a channel.' -x
complete -c nsq-tail -l last -d 'As --since, with this number of messages.' -x
complete -c nsq-tail -l nsqd-http-address -d 'HTTP address (host:port) of an nsqd, for --since and --last (may be given several times). By default, the port is the one after that of --nsqd-tcp-address.' -x
complete -c nsq-tail -l max-in-flight -d 'Maximum number of messages in flight.' -x
complete -c nsq-tail -l consumer-opt -d 'Option of the consumer as name,value with the names of go-nsq\'s Config, such as tls_v1,true or msg_timeout,30s (may be given several times).' -x
complete -c nsq-tail -l n -d 'Number of messages to show; then the tool ends. 0 means no limit.' -x
complete -c nsq-tail -l print-topic -d 'Write the topic before each message: `topic | body`.'
complete -c nsq-tail -l grep -d 'Show only messages whose body matches this regular expression (RE2).' -x
complete -c nsq-tail -l pick -d 'Show a value of a JSON body, by a path such as .user.name, .tags[0] or .["a key"] (may be given several times: the values are written on one line, separated by tabs).' -x
complete -c nsq-tail -l json -d 'Format JSON: indented and coloured on a terminal, on one line in a pipe.'
complete -c nsq-tail -l format -d 'Text to write for each message, with {timestamp}, {timestamp_ns}, {id}, {attempts}, {topic}, {channel}, {nsqd}, {body}; \\t and \\n are a tab and a line feed.' -x
complete -c nsq-tail -l log-level -d 'Write log lines of this level and above: debug, info, warn, error, fatal.' -x -a 'debug info warn error fatal'
complete -c nsq-tail -l log-format -d 'Format of the log on stderr: text (lines as Go\'s NSQ writes them) or json (one object a line).' -x -a 'text json'
complete -c nsq-tail -l log-prefix -d 'Prefix of every log line.' -x
complete -c nsq-tail -l help -d 'Show what the flags mean and exit.'
