package main

import "time"

// An effort says how much is done for a figure, beside the length of a case.
type effort struct {
	warmUp       time.Duration
	logCalls     int           // measured for each size of a log
	leaseTakes   int           // slices of leases
	leasesAtOnce int           // expire together
	leaseLife    time.Duration // of those
	modeShare    int           // divides the number of requests of a mode
	slotCallers  []int
	slotRounds   int // how often a way and the floor are measured in turns: disks have their moods
	floorWindows int // of slots, in thousands: more than anybody fills in the time
	dayEvents    int
	notifyUsers  int64
	storedKeys   int // in memory at once
}

// The efforts: full makes figures to compare, and tiny shows that a table can be
// printed.
var (
	full = effort{
		warmUp: time.Second, logCalls: 40_000, leaseTakes: 1_000, leasesAtOnce: 100_000, leaseLife: 30 * time.Second,
		modeShare: 1, slotCallers: []int{1, 16, 64}, slotRounds: 3, floorWindows: 20, dayEvents: 1_000_000, notifyUsers: 250,
		storedKeys: 300_000,
	}
	tiny = effort{
		warmUp: time.Millisecond, logCalls: 600, leaseTakes: 10, leasesAtOnce: 500, leaseLife: 500 * time.Millisecond,
		modeShare: 500, slotCallers: []int{2}, slotRounds: 1, floorWindows: 1, dayEvents: 200, notifyUsers: 5,
		storedKeys: 20_000,
	}
)
