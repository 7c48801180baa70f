#!/usr/bin/env bash
# nsqlookupd, nsqd and nsqadmin together on this machine, on the default ports, until Ctrl-C. `make run` calls it.
#
#   contrib/run-local.sh BIN DATA     BIN has the three programs; DATA keeps the messages, and nsqadmin's history
#
# More flags for each: NSQLOOKUPD_FLAGS, NSQD_FLAGS, NSQADMIN_FLAGS. Where the other two find nsqlookupd:
# NSQLOOKUPD_TCP_ADDRESS, NSQLOOKUPD_HTTP_ADDRESS.
set -euo pipefail
# Process groups of their own: Ctrl-C comes to this script only, which passes it on to one after the other.
set -m

bin=$1
data=$2
mkdir -p "$data"

asked=
turn=  # who is to end next
told=  # who was asked to last; a second time means at once
tell() {
    told=$1
    kill -TERM "$1" 2>/dev/null
}
trap 'asked=1; [ -z "$turn" ] || tell "$turn" || true' INT TERM

names=(nsqlookupd nsqd nsqadmin)
processes=()
# nsqadmin asks the other two every two seconds: a line for each question would bury everything else.
"$bin/nsqlookupd-py" --broadcast-address=127.0.0.1 --log-level=warn ${NSQLOOKUPD_FLAGS:-} &
processes+=($!)
"$bin/nsqd-py" --broadcast-address=127.0.0.1 --log-level=warn --data-path="$data" \
    --lookupd-tcp-address="${NSQLOOKUPD_TCP_ADDRESS:-127.0.0.1:4160}" ${NSQD_FLAGS:-} &
processes+=($!)
"$bin/nsqadmin-py" --http-address=127.0.0.1:4171 --history-file="$data/nsqadmin-history.db" \
    --lookupd-http-address="${NSQLOOKUPD_HTTP_ADDRESS:-127.0.0.1:4161}" ${NSQADMIN_FLAGS:-} &
processes+=($!)
turn=$!

# All serve until they are asked to stop; where one ends by itself, so do the others.
status=0
[ -n "$asked" ] || wait -n "${processes[@]}" || status=$?
ended=
# Not in the order in which they started: none is to miss another.
for place in 2 1 0; do
    turn=${processes[$place]}
    [ "$told" = "$turn" ] || tell "$turn" || ended+=" ${names[$place]}"
    while kill -0 "$turn" 2>/dev/null; do wait "$turn" || true; done
done
[ -z "$asked" ] || exit 0
echo "Ended by itself:$ended (status $status); why is in its last lines above." >&2
echo "Where a port is taken, by another 'make run' perhaps, flags move it: NSQADMIN_FLAGS=--http-address=127.0.0.1:4172" >&2
exit "$status"
