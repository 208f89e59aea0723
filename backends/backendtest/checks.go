package backendtest

import (
	"maps"
	"slices"
	"testing"

	"github.com/headgate-rls/headgate/test/random"
)

// A check is one test of the suite. It runs on a testing.TB so that the
// suite's own tests can watch it fail.
type check struct {
	name string
	run  func(e *env)
}

// checks is the whole suite.
var checks = []check{
	{"Model", checkModel},
	{"SliceEqualsSingles", checkSliceEqualsSingles},
	{"OrderOfOps", checkOrderOfOps},
	{"Extremes", checkExtremes},
	{"ChangedLimits", checkChangedLimits},
	{"RefusedChangesNothing", checkRefusedChangesNothing},
	{"Overflow", checkOverflow},
	{"OverflowElsewhere", checkOverflowElsewhere},
	{"Hurry", checkHurry},
	{"VerdictMemory", checkVerdictMemory},
	{"RequestUntouched", checkRequestUntouched},

	{"Alternatives", checkAlternatives},
	{"AlternativesInOrder", checkAlternativesInOrder},
	{"AlternativesParallel", checkAlternativesParallel},

	{"Retry", checkRetry},
	{"Reset", checkReset},
	{"Calendar", checkCalendar},
	{"Precision", checkPrecision},
	{"ClockSteps", checkClockSteps},
	{"PlainWindows", checkPlainWindows},
	{"ServerClock", checkServerClock},
	{"ServerClockModel", checkServerClockModel},
	{"ServerClockWait", checkServerClockWait},
	{"StateGoesAway", checkStateGoesAway},

	{"Keys", checkKeys},
	{"RawGroups", checkRawGroups},
	{"Forget", checkForget},
	{"List", checkList},

	{"Caps", checkCaps},
	{"OverCaps", checkOverCaps},
	{"Cancelled", checkCancelled},
	{"Ping", checkPing},
	{"Trips", checkTrips},

	{"ParallelTakes", checkParallelTakes},
	{"ParallelReports", checkParallelReports},
	{"LastUnit", checkLastUnit},
	{"CrossedKeys", checkCrossedKeys},
	{"TwoHandles", checkTwoHandles},
	{"Processes", checkProcesses},
	{"CloseLeavesNothing", checkCloseLeavesNothing},

	{"LeaseModel", checkLeaseModel},
	{"LeaseInterleavings", checkLeaseInterleavings},
	{"LeaseServerClock", checkLeaseServerClock},
	{"LeasesExpireTogether", checkLeasesExpireTogether},
	{"LeasesGoAway", checkLeasesGoAway},
	{"LeasesForgotten", checkLeasesForgotten},
	{"LeasesEnd", checkLeasesEnd},
	{"LeasesOfAnOwner", checkLeasesOfAnOwner},
	{"Settlements", checkSettlements},
	{"LeasesParallel", checkLeasesParallel},
	{"LeasesProcesses", checkLeasesProcesses},

	{"Claims", checkClaims},
	{"Tables", checkTables},
	{"TableBound", checkTableBound},

	{"Frozen", checkFrozen},
	{"Killed", checkKilled},
}

// chosen are the checks of a short suite, by what they are about. TestShortSuiteNoticesMutants says
// what they find.
var chosen = map[string][]string{
	"algorithms": {"Model", "Alternatives", "AlternativesInOrder", "RefusedChangesNothing", "OverflowElsewhere", "Hurry",
		"VerdictMemory", "Reset"},
	"expiry":    {"ServerClock", "ClockSteps", "StateGoesAway"},
	"keys":      {"Keys", "RawGroups", "Forget"},
	"lists":     {"List"},
	"caps":      {"OverCaps", "Cancelled", "Ping"},
	"atomicity": {"LastUnit", "CrossedKeys", "TwoHandles"},
	"leases": {"LeaseModel", "LeasesExpireTogether", "LeasesGoAway", "LeasesForgotten", "LeasesEnd",
		"LeasesOfAnOwner", "LeasesParallel", "Settlements"},
	"tables": {"Claims"},
	"faults": {"Frozen", "Killed"},
}

// short returns the checks that are chosen.
func short() []check {
	names := slices.Concat(slices.Collect(maps.Values(chosen))...)
	return slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return !slices.Contains(names, c.name) })
}

// Run holds a backend to the contract.
func Run(t *testing.T, s Suite) {
	run := checks
	if s.Short && !random.Long() {
		run = short()
	}
	for _, c := range run {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, s)
			c.run(e)
		})
	}
}
