#!/usr/bin/env bash
# Shows headgate behind a real Envoy, with the files in examples/envoy: sends
# requests and prints which of them were refused, and why. Nothing is left
# running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v go >/dev/null; then
	echo "demo: error: there is no go on PATH. Install the version that go.mod names, or a later one" >&2
	exit 1
fi
envoy=${HEADGATE_TESTENV_DIR:-$HOME/.cache/headgate-testenv}/envoy-1.40.0/envoy
[ -x "$envoy" ] || ./scripts/setup-testenv.sh envoy

echo "demo: building (the first time takes a minute or two)"
go build -o bin/ ./cmd/headgate ./internal/app/demo
# In the place of this shell, so that it gets the signals itself.
exec bin/demo -headgate bin/headgate -envoy "$envoy" "$@"
