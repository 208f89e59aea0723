//go:build race

package descriptors

const raceEnabled = true
