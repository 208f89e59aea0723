// Package slots deals out future times under a limit, exactly once.
//
// Time is cut into windows of one size, aligned to the Unix epoch; each holds at most so many events. An event that
// asks for a time gets the first window with room at or after it, at a random instant inside it, and keeps that slot
// for ever: asking again gives the same answer.
//
// # To change it
//
//   - which window an event gets: search.go, engine.go and sqlstore/migrations/oracle/R__rl_slot_api.sql (the same on
//     Oracle); go test ./slots/...
//   - who shares a search, waiting, retries: coalesce.go, group.go, turns.go and shares.go; go test ./slots
//     ./slots/internal/slotstest
//   - how configs are followed: configcache.go and configs.go; go test ./slots -run Change
//
// # More
//
// A Scheduler is the door: it checks requests, knows the active configs, joins callers that want the same windows,
// remembers which windows are full, and tries again what failed in passing. It asks an Engine to place events. There
// are two, with the same results: the tx engine sends one statement after another to a database (Tables), the procedure
// engine does the same inside the database in one round trip (Procedure). What a process remembers only saves work; the
// database alone decides.
//
// Instants are int64: microseconds since the Unix epoch for times that callers ask for (…Us), milliseconds for windows,
// sizes and scheduled times (…Ms), in UTC always. Package plan has the arithmetic.
package slots
