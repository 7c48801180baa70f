complete -c nsq-to-nsq -f
complete -c nsq-to-nsq -l version -d 'Print the version and exit.'
complete -c nsq-to-nsq -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsq-to-nsq -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsq-to-nsq -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsq-to-nsq -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsq-to-nsq -l topic -d 'NSQ topic (may be given several times).' -x
complete -c nsq-to-nsq -l channel -d 'NSQ channel.' -x
complete -c nsq-to-nsq -l max-in-flight -d 'Maximum number of messages in flight.' -x
complete -c nsq-to-nsq -l nsqd-tcp-address -d 'TCP address (host:port) of an nsqd to consume from (may be given several times).' -x
complete -c nsq-to-nsq -l lookupd-http-address -d 'HTTP address (host:port) of an nsqlookupd that lists the nsqds of the topic (may be given several times).' -x
complete -c nsq-to-nsq -l consumer-opt -d 'Option of the consumer as name,value with the names of go-nsq\'s Config, such as tls_v1,true or msg_timeout,30s (may be given several times).' -x
complete -c nsq-to-nsq -l destination-nsqd-tcp-address -d 'TCP address (host:port) of an nsqd to publish to (may be given several times).' -x
complete -c nsq-to-nsq -l destination-topic -d 'Publish to this topic.' -x
complete -c nsq-to-nsq -l mode -d 'How to choose a destination: round-robin (in turn), hostpool (in turn, skipping failed ones), epsilon-greedy (faster ones more often).' -x -a 'round-robin hostpool epsilon-greedy'
complete -c nsq-to-nsq -l producer-opt -d 'Option of the producer as name,value with the names of go-nsq\'s Config, such as snappy,true or dial_timeout,5s (may be given several times).' -x
complete -c nsq-to-nsq -l require-json-field -d 'Publish only JSON objects with this field. Other messages are finished.' -x
complete -c nsq-to-nsq -l require-json-value -d 'Publish only JSON objects in which --require-json-field has this value, as a string or a number. If the field is missing, the message is requeued, and finished after five attempts.' -x
complete -c nsq-to-nsq -l whitelist-json-field -d 'Publish only this field of each JSON object (may be given several times).' -x
complete -c nsq-to-nsq -l status-every -d 'Number of messages between two status lines, for each destination and for all; 0 means no status lines.' -x
complete -c nsq-to-nsq -l log-level -d 'Write log lines of this level and above: debug, info, warn, error, fatal.' -x -a 'debug info warn error fatal'
complete -c nsq-to-nsq -l log-format -d 'Format of the log on stderr: text (lines as Go\'s NSQ writes them) or json (one object a line).' -x -a 'text json'
complete -c nsq-to-nsq -l log-prefix -d 'Prefix of every log line.' -x
complete -c nsq-to-nsq -l help -d 'Show what the flags mean and exit.'
