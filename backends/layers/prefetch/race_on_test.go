//go:build race

package prefetch

func raceEnabled() bool { return true }
