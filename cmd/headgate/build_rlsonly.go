//go:build rlsonly

// With the tag nethttpomithttp2 net/http has no HTTP/2, but still offers it in TLS handshakes. These lines stop that.
//
//go:debug http2server=0
//go:debug http2client=0
package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/descriptors"
)

// stores ends the error of a URL whose store this build does not have.
const stores = "; this build (rlsonly) has memory:// and redis:// only"

// probes: check can ask a backend what it is able to do.
const probes = false

// notSent needs what only the whole program has.
func notSent(*descriptors.Set, string) ([]descriptors.Problem, error) {
	return nil, inputError{errors.New("--envoy is not in this build (rlsonly)")}
}

// commands are those of this build.
func commands() []*cobra.Command { return serviceCommands() }
