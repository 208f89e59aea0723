//go:build rlsonly

package main

import "github.com/spf13/cobra"

// commands are those of this build.
func commands() []*cobra.Command { return serviceCommands() }
