//go:build rlsonly

package server

import (
	"context"
	"os"
	"strings"

	"google.golang.org/grpc"

	_ "github.com/headgate-rls/headgate/backends/redis" // the store that this build has beside memory
)

// httpProtocols are the protocols of net/http in this build, by their names in ALPN. The tag nethttpomithttp2 removes
// HTTP/2 from net/http.
var httpProtocols = []string{"http/1.1"}

// openers are the additions, in the order in which they are opened.
var openers = []opener{warnOfTracing, openCapture}

// openVerifier is never called: --admin-jwks is an error in this build.
func openVerifier(*server) (func(context.Context, string) (string, error), error) { return nil, nil }

// registerReflection does nothing: this build has no reflection.
func registerReflection(*grpc.Server) {}

// warnOfTracing warns that this build sends no traces if the environment asks for them, also by a misspelt value.
func warnOfTracing(_ context.Context, s *server) (*addition, error) {
	if to := strings.TrimSpace(os.Getenv("OTEL_TRACES_EXPORTER")); to != "" && !strings.EqualFold(to, "none") {
		s.log.Warn("OTEL_TRACES_EXPORTER has no effect: this build (rlsonly) sends no traces")
	}
	return nil, nil
}
