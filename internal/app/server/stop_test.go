package server

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/app/config"
)

// TestStopFitsKubernetes adds up what a stop takes at most by default.
func TestStopFitsKubernetes(t *testing.T) {
	conf := config.Define(pflag.NewFlagSet("", pflag.ContinueOnError))
	most := conf.DrainDelay + conf.DrainTimeout + closeWithin + closeHTTPWithin + giveBackWithin
	if most > 28*time.Second { // Kubernetes gives a pod 30
		t.Errorf("a stop takes up to %v", most)
	}
}
