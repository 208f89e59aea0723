#!/usr/bin/env bash
# Runs the tests of limits, slots and policies on a real Oracle Database Free. All of it is in containers: this needs
# Docker, 4 GB of memory, and the internet for two images and Oracle Instant Client.
#
#   scripts/oracle-test.sh
#
# These variables change what runs:
#
#   ORACLE_IMAGE    the database, with the environment of gvenzl/oracle-free
#   GO_IMAGE        where the tests are built and run: Debian with Go and gcc
#   INSTANT_CLIENT  the URL of Instant Client Basic Light, as zip, for the architecture of the machine
#   WAIT_SECONDS    how long the database may take to start, 900 by default
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'oracle-test: error: %s\n' "$*" >&2; exit 1; }

readonly ORACLE_IMAGE=${ORACLE_IMAGE:-gvenzl/oracle-free:23-slim-faststart}
readonly GO_IMAGE=${GO_IMAGE:-golang:1.26.8-bookworm}
readonly WAIT_SECONDS=${WAIT_SECONDS:-900}
[[ $WAIT_SECONDS =~ ^[1-9][0-9]{0,5}$ ]] || die "WAIT_SECONDS is '$WAIT_SECONDS': want a number of seconds, such as 900"
docker version >/dev/null 2>&1 || die "this needs Docker: 'docker version' fails"
case $(docker version --format '{{.Server.Arch}}') in
	amd64) client=instantclient-basiclite-linuxx64.zip ;;
	arm64) client=instantclient-basiclite-linux-arm64.zip ;;
	*) die "Oracle has no Instant Client for this architecture of Docker's" ;;
esac
readonly INSTANT_CLIENT=${INSTANT_CLIENT:-https://download.oracle.com/otn_software/linux/instantclient/$client}

readonly NAME=headgate-oracle-test-$$
trap 'docker rm --force --volumes "$NAME" >/dev/null 2>&1 || true; docker network rm "$NAME" >/dev/null 2>&1 || true' EXIT
docker network create "$NAME" >/dev/null
docker run --detach --name "$NAME" --network "$NAME" --network-alias oracle --shm-size 1g \
	--env ORACLE_PASSWORD=for-tests --env APP_USER=HEADGATE --env APP_USER_PASSWORD=headgate "$ORACLE_IMAGE" >/dev/null
echo "oracle-test: waiting until $ORACLE_IMAGE is ready, at most $WAIT_SECONDS s"
until docker exec "$NAME" healthcheck.sh >/dev/null 2>&1; do
	if ((SECONDS >= WAIT_SECONDS)) || [ "$(docker inspect --format '{{.State.Running}}' "$NAME")" != true ]; then
		docker logs --tail 30 "$NAME" >&2
		die "the database is not ready after $SECONDS s; its log is above"
	fi
	sleep 3
done

# The packages share a schema, and so run one after another. A test that finds no Oracle fails: it is demanded.
docker run --rm --network "$NAME" --volume "$PWD:/src:ro" --workdir /src --env INSTANT_CLIENT="$INSTANT_CLIENT" \
	--env TEST_ORACLE_DSN=oracle://HEADGATE:headgate@oracle:1521/FREEPDB1 --env HEADGATE_TEST_MUSTRUN=oracle \
	"$GO_IMAGE" bash -euo pipefail -c '
	apt-get update -qq && apt-get install -qq --yes --no-install-recommends libaio1 unzip >/dev/null
	curl --fail --silent --show-error --location --retry 3 --output /tmp/client.zip "$INSTANT_CLIENT"
	unzip -q /tmp/client.zip -d /opt/oracle
	export LD_LIBRARY_PATH=$(echo /opt/oracle/instantclient_*) GOFLAGS=-buildvcs=false
	go test -tags godror -count=1 -p 1 -timeout 60m -v -run "^TestRealOracle" ./backends/sqlstore ./slots/sqlstore ./policies/sqlstore'
