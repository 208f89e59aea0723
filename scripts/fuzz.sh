#!/usr/bin/env bash
# Runs every fuzz target for some time: fuzz.sh 20s. A target that tries few inputs hardly tests anything, so that one
# that tries fewer than HEADGATE_FUZZ_LEAST a minute (10000) is an error, as is one that fails. The end names them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly TIME=${1:?say how long each target runs, such as 20s} LEAST=${HEADGATE_FUZZ_LEAST:-10000}

# per_minute reads what go test prints and prints how many inputs were tried in a minute. The last line that has them is
# such as: fuzz: elapsed: 1m3s, execs: 45064 (1000/sec), new interesting: 20 (total: 23)
per_minute() {
	awk '/^fuzz: elapsed: .* execs: / {
		time = $3; seconds = 0
		while (match(time, /^[0-9]+[hms]/)) {
			unit = substr(time, RLENGTH, 1)
			seconds += substr(time, 1, RLENGTH - 1) * (unit == "h" ? 3600 : unit == "m" ? 60 : 1)
			time = substr(time, RLENGTH + 1)
		}
		tried = $5
	}
	END { printf "%d", seconds ? tried * 60 / seconds : 0 }'
}

out=$(mktemp)
trap 'rm -f "$out"' EXIT
bad=()
while IFS=: read -r file target; do
	package=./$(dirname "$file")
	echo "== $package $target"
	if ! go test -vet=off -run '^$' -fuzz "^$target\$" -fuzztime "$TIME" -fuzzminimizetime 100x "$package" | tee "$out"; then
		bad+=("$package $target failed")
		continue
	fi
	tried=$(per_minute <"$out")
	echo "$tried inputs a minute"
	if ((tried < LEAST)); then
		bad+=("$package $target tried $tried inputs a minute, want $LEAST: make it quicker, or have a quieter machine")
	fi
done < <(git ls-files '*_test.go' | xargs grep -Ho '^func Fuzz[A-Za-z0-9_]*' | sed 's/:func /:/')
if ((${#bad[@]})); then
	printf '%s\n' "" "${bad[@]}" >&2
	exit 1
fi
