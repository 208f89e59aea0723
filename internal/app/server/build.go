//go:build !rlsonly

package server

// The stores of counters that a server has, and commands that need one.
import (
	_ "github.com/headgate-rls/headgate/backends/dynamodb"
	_ "github.com/headgate-rls/headgate/backends/redis"
	_ "github.com/headgate-rls/headgate/backends/sqlstore"
)

// httpProtocols are the protocols of net/http in this build, by their names in ALPN.
var httpProtocols = []string{"h2", "http/1.1"}

// openers are the additions, in the order in which they are opened: candidates need policies.
var openers = []opener{openTracing, openSlots, openPolicies, openCapture, openTrial}
