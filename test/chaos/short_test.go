package chaos

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// short is for a machine that runs other tests at the same time: fewer calls
// with more time each.
func short() style {
	return style{
		transport: "unary", start: startService, deadline: 500 * time.Millisecond,
		pause: 20 * time.Millisecond, burst: 2,
		limits: []int{10, 30, 50}, // at about 17 calls a second for each key
		before: 1500 * time.Millisecond, outage: 2 * time.Second, after: 2500 * time.Millisecond,
		recoverIn: 2 * time.Second, recoverBusy: 20 * time.Second,
		// Were all replicas to hang for the outage, it would be about 30.
		maxNoise: 20,
	}
}

// TestAnswersGoOnInAShortRun is what of TestAnswersGoOnWithoutTheBackend can be had in a
// few seconds.
func TestAnswersGoOnInAShortRun(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	idleAddr := testenv.StartIdle(t)
	t.Run("killed and restarted empty", func(t *testing.T) { play(t, short(), restartedEmpty(t), idleAddr) })
	t.Run("stopped", func(t *testing.T) { play(t, short(), stopped(t), idleAddr) })
}
