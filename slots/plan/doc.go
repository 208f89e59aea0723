// Package plan is the arithmetic of slot scheduling: which window an instant falls in, how many places of it are left,
// where in it an event is put, and which windows a calendar opens.
//
// It has no clock, no randomness and no I/O except that [ParseCalendar] loads a time zone; it imports the standard
// library only. Callers pass the random bits, so the same input always gives the same slot, in Go and in SQL.
//
// # To change it
//
//   - windows, capacities and the instant inside a window: window.go; go test ./slots/plan
//   - sizes of windows: size.go; go test ./slots/plan
//   - calendars: calendar.go, entries.go and span.go; go test ./slots/plan
//
// # More
//
// Units: requested instants are int64 microseconds since the Unix epoch, UTC (parameters named us). Window starts,
// window sizes, offsets and scheduled instants are int64 milliseconds (names that end in Ms). Windows are aligned to
// the epoch: they are [k*size, (k+1)*size) for every integer k, also before 1970. A size need not divide a day.
//
// Rounding goes against early scheduling: the elapsed part of a window is rounded up and a capacity is rounded down.
// Every product stays below 2^63 for sizes up to [MaxSizeMs] and capacities up to [MaxPerWindow], so that databases
// with 64-bit integers compute the same figures.
//
// A program that parses calendars should import time/tzdata, or it depends on the zone files of the machine it runs on.
// This package does not import it, so that the choice is the program's.
package plan
