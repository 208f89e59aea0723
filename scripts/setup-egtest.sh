#!/usr/bin/env bash
# Builds what `make egtest` needs beside what setup-testenv.sh installs: Envoy Gateway, and
# the reference service to compare with. That takes minutes of CPU, so it is not part of
# `make setup`. It keeps what is installed already.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/headgate-testenv
gateway=v1.9.1
# The commit of the reference that tests compare with, as Go names it.
reference=$(go -C "$(dirname "$0")/../tools/reference" list -m -f '{{.Version}}' github.com/envoyproxy/ratelimit)

build() { # folder program package
    local folder=$cache/$1
    if [ -x "$folder/$2" ]; then
        echo "$2 is in $folder"
        return
    fi
    echo "building $2; this takes minutes"
    mkdir -p "$folder"
    CGO_ENABLED=0 GOBIN=$folder nice go install "$3"
}

build "envoy-gateway-${gateway#v}" envoy-gateway "github.com/envoyproxy/gateway/cmd/envoy-gateway@$gateway"
# The comparison is left out where the reference cannot be built.
build ratelimit-reference service_cmd "github.com/envoyproxy/ratelimit/src/service_cmd@$reference" ||
    echo "the reference service cannot be built here; its tests are skipped"
