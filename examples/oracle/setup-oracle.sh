#!/bin/bash
# Starts Oracle 19c by Docker Compose, waits until it is ready, and creates the user
# rate_limiter, password rate_limiter, in ORCLPDB1. It may be run again.
#
# The first start takes a few minutes. WAIT_SECONDS (900) bounds the wait.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

wait_seconds=${WAIT_SECONDS:-900}
if ! [[ $wait_seconds =~ ^[1-9][0-9]{0,5}$ ]]; then
  echo "WAIT_SECONDS is '$wait_seconds': want a number of seconds, such as 900" >&2
  exit 2
fi
if ! docker compose version >/dev/null 2>&1; then
  echo "this needs Docker with the compose plugin: 'docker compose version' fails" >&2
  exit 2
fi

# sqlplus runs the SQL of its standard input as the administrator. A database that is
# half up must not hang it for ever.
sqlplus() {
  timeout 120 docker compose exec -T oracle bash -lc 'exec sqlplus -S -L / as sysdba'
}

ready() {
  local output
  output=$(sqlplus <ready.sql 2>/dev/null) && [[ $output == *"ORCLPDB1 IS READ WRITE"* ]]
}

docker compose up -d oracle
echo "waiting until ORCLPDB1 is open, at most $wait_seconds s; the first time takes minutes"
until ready; do
  if ((SECONDS >= wait_seconds)); then
    echo "ORCLPDB1 is not open after $SECONDS s. The container's log ends with:" >&2
    docker compose logs --tail 20 oracle >&2
    exit 1
  fi
  sleep 5
done

if ! output=$(sqlplus <create-user.sql 2>&1); then
  echo "the user could not be created:" >&2
  echo "$output" >&2
  exit 1
fi
echo "ready: jdbc:oracle:thin:@localhost:1521/ORCLPDB1, user rate_limiter, password rate_limiter"
