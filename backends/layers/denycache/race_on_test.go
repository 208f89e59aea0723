//go:build race

package denycache

func raceEnabled() bool { return true }
