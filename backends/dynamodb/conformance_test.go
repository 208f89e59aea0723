package dynamodb

import (
	"os"
	"testing"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

const childURL = "HEADGATE_TEST_DYNAMODB_URL"

// TestChild is one of several processes of the conformance suite.
func TestChild(t *testing.T) {
	backendtest.Child(t, func(tb testing.TB) backends.Backend { return openURL(tb, os.Getenv(childURL)) })
}

// TestConformance has a server of its own, which it hurts. What is not in the suite: the round trips of
// slices with several keys, since each key has a call of its own (TestCallsOfASlice counts them), and
// that state goes away, which is the business of DynamoDB and takes it hours.
func TestConformance(t *testing.T) {
	server := testenv.StartDynamoDB(t, testenv.InMemory)
	// Its callers come one by one, and each decision of theirs races with those of others. In headgate
	// they are gathered: TestProcessesShareAKey has the default.
	url := newTableAt(t, server.URL) + "&tries=20"
	backendtest.Run(t, backendtest.Suite{
		Caps: open(t, url).caps, Shared: true, Rounds: random.Times(4, 60), // a call takes a millisecond or two
		Open:  func(tb testing.TB) backends.Backend { return openURL(tb, url) },
		Child: "TestChild", ChildEnv: []string{childURL + "=" + url},
		Faults: &backendtest.Faults{
			Freeze: func(testing.TB) { server.Pause() }, Thaw: func(testing.TB) { server.Resume() },
			Kill: func(testing.TB) { server.Kill() }, Restart: func(tb testing.TB) { server.Restart(); migrate(tb, url) },
		},
	})
}
