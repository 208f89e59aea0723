// Package reference imports what the integration tests of envoyproxy/ratelimit do, so that go.mod has it.
package reference

import (
	_ "github.com/envoyproxy/ratelimit/src/memcached"
	_ "github.com/envoyproxy/ratelimit/test/common"
	_ "github.com/headgate-rls/headgate/limit" // whose versions of modules count
)
