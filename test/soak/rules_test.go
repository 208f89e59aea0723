//go:build soak

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	domain = "soak"
	// values is how many values most keys have.
	values = 100_000
	// free is the key of a rule that never refuses, so that its answers tell
	// what the backend says right now; no refusal of it is ever remembered.
	free       = "free"
	freeValues = 6
)

// keys are what requests ask about: the keys of rules, and "several", which
// stands for a request with three descriptors.
var keys = []string{"fixed", "log", "window", "bucket", "pair", "several", free}

// longestWindow is that of any rule but the one of free. A counter is kept no
// longer than two windows.
const longestWindow = time.Minute

// rules has all algorithms and policies. The generation decides between two
// sets of figures.
func rules(generation int) string {
	n := 10 * (1 + generation%2)
	return fmt.Sprintf(`# generation %[1]d
domain: %[2]s
descriptors:
- key: fixed
  on_backend_error: allow
  rate_limit: {unit: minute, requests_per_unit: %[3]d}
- key: log
  on_backend_error: local
  limits: [{name: log, algorithm: sliding_log, limit: %[3]d, window: 10s}]
- key: window
  on_backend_error: deny
  limits: [{name: window, algorithm: sliding_window, limit: %[3]d, window: 30s}]
- key: bucket
  on_backend_error: local
  limits: [{name: bucket, algorithm: token_bucket, rate: 1/s, burst: %[3]d}]
- key: pair
  on_backend_error: local
  charge: each
  limits:
  - {name: second, algorithm: fixed_window, limit: %[3]d, window: 1s}
  - {name: minute, algorithm: token_bucket, rate: %[3]d/min, burst: %[3]d}
- key: %[4]s
  on_backend_error: deny
  rate_limit: {unit: hour, requests_per_unit: 1000000000}
`, generation, domain, n, free)
}

// putRules replaces the file by one of the generation, as an editor does.
func putRules(file string, generation int) error {
	aside := filepath.Join(filepath.Dir(file), ".rules")
	if err := os.WriteFile(aside, []byte(rules(generation)), 0o600); err != nil {
		return err
	}
	return os.Rename(aside, file)
}
