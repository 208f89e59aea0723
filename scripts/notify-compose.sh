#!/usr/bin/env bash
# Starts examples/notify with Docker in both ways, and asks it what docs/notify.md promises: a message is accepted
# and sent; while Kafka is down, "outbox" accepts messages and "direct" answers 503.
set -euo pipefail
cd "$(dirname "$0")/../examples/notify"

profile=
compose() { docker compose --profile "$profile" "$@"; }
fail() {
	echo "notify-compose ($profile): $1" >&2
	compose logs --tail 50 >&2
	exit 1
}
post() { # path, body: prints the status
	curl -sS -o /dev/null -w '%{http_code}' -m 20 -H 'Content-Type: application/json' -d "$2" "localhost:8080$1"
}
trap 'compose down --volumes --timeout 20' EXIT

for profile in outbox direct; do
	compose up --build --detach --wait --wait-timeout 300
	for try in $(seq 60); do
		[ "$(post /api/config '{"userId":"alice","rateLimit":5,"timeWindow":10}' || true)" = 200 ] && break
		[ "$try" -lt 60 ] || fail "the gateway does not take a configuration"
		sleep 1
	done
	[ "$(post /api/send '{"userId":"alice","message":"hello"}')" = 200 ] || fail "a message is not accepted"
	for try in $(seq 60); do
		compose logs sender | grep -q 'SMS SENT' && break
		[ "$try" -lt 60 ] || fail "the message is not sent"
		sleep 1
	done
	compose stop kafka
	want=$([ "$profile" = outbox ] && echo 200 || echo 503)
	got=$(post /api/send '{"userId":"alice","message":"while Kafka is down"}')
	[ "$got" = "$want" ] || fail "while Kafka is down a send gets $got, not $want"
	compose down --volumes --timeout 20
	echo "notify-compose ($profile): ok"
done
