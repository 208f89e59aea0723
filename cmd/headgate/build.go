//go:build !rlsonly

package main

import "github.com/spf13/cobra"

// stores ends the error of a URL whose store this build does not have.
const stores = ""

// probes: check can ask a backend what it is able to do.
const probes = true

// commands are those of this build.
func commands() []*cobra.Command {
	return append(serviceCommands(), testCommand(), replayCommand(), diffCommand(), envoyCommand(), slotCommand(),
		slotsCommand(), policyCommand(), migrateCommand())
}
