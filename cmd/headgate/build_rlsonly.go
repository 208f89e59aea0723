//go:build rlsonly

// The tag nethttpomithttp2 leaves HTTP/2 out of net/http, which offers it to clients and servers all the same.
//
//go:debug http2server=0
//go:debug http2client=0
package main

import "github.com/spf13/cobra"

// stores ends the error of a URL whose store this build does not have.
const stores = "; this build (rlsonly) has memory:// and redis:// only"

// commands are those of this build.
func commands() []*cobra.Command { return serviceCommands() }
