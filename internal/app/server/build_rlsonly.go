//go:build rlsonly

package server

import (
	"context"
	"os"
	"strings"

	_ "github.com/headgate-rls/headgate/backends/redis" // the store that this build has beside memory
)

// openers are the additions, in the order in which they are opened.
var openers = []opener{warnOfTracing, openCapture}

// warnOfTracing warns that this build sends no traces if the environment asks for them, also by a misspelt value.
func warnOfTracing(_ context.Context, s *server) (*addition, error) {
	if to := strings.TrimSpace(os.Getenv("OTEL_TRACES_EXPORTER")); to != "" && !strings.EqualFold(to, "none") {
		s.log.Warn("OTEL_TRACES_EXPORTER has no effect: this build (rlsonly) sends no traces")
	}
	return nil, nil
}
