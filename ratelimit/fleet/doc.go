// Package fleet shows who is refused and who is near a limit in all replicas together. Each replica writes the keys
// that count most in it to the store that they share, in a few rows that soon expire.
//
// # To change it
//
//   - what replicas tell each other of refused and near keys: fleet.go (when), row.go (how) and rate.go (answers per
//     second); go test ./ratelimit/fleet
package fleet
