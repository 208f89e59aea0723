package backendtest

import "testing"

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
	{"RefusedChangesNothing", checkRefusedChangesNothing},
	{"Overflow", checkOverflow},
	{"OverflowElsewhere", checkOverflowElsewhere},
	{"Hurry", checkHurry},
	{"VerdictMemory", checkVerdictMemory},
	{"RequestUntouched", checkRequestUntouched},

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
	{"LeasesOfAnOwner", checkLeasesOfAnOwner},
	{"LeasesParallel", checkLeasesParallel},
	{"LeasesProcesses", checkLeasesProcesses},

	{"Claims", checkClaims},
	{"Tables", checkTables},
	{"TableBound", checkTableBound},

	{"Frozen", checkFrozen},
	{"Killed", checkKilled},
}

// Run holds a backend to the contract.
func Run(t *testing.T, s Suite) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, s)
			c.run(e)
		})
	}
}
