//go:build race

package share

func raceEnabled() bool { return true }
