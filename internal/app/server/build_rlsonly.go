//go:build rlsonly

package server

import (
	"context"
	"os"

	_ "github.com/headgate-rls/headgate/backends/redis" // the store that this build has beside memory
)

// hasStores ends errors about the URL of a store.
const hasStores = "; this build (rlsonly) has memory:// and redis:// only"

// openers are the additions, in the order in which they are opened.
var openers = []opener{warnOfTracing, openCapture}

// warnOfTracing says that this build sends no traces, where the environment asks for them.
func warnOfTracing(_ context.Context, s *server) (*addition, error) {
	if os.Getenv("OTEL_TRACES_EXPORTER") == "otlp" {
		s.log.Warn("OTEL_TRACES_EXPORTER has no effect: this build (rlsonly) sends no traces")
	}
	return nil, nil
}
