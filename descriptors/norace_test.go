//go:build !race

package descriptors_test

const raceEnabled = false
