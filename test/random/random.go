// Package random gives tests random numbers that can be repeated.
package random

import (
	crand "crypto/rand"
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Setting is the environment variable with the seed of random tests: a number,
// or "random", which draws another one for each. Unset, each has a seed that is
// always the same, so that a change is what makes a test fail, not a day;
// "make hunt" looks for what other seeds find.
const Setting = "HEADGATE_TEST_SEED"

// LongSetting is the environment variable that has tests run their long form, if it
// is not empty. "make test-all" and "make hunt" set it.
const LongSetting = "HEADGATE_TEST_LONG"

// Long reports whether tests run their long form.
func Long() bool { return os.Getenv(LongSetting) != "" }

// Times returns how often a test does something: long in its long form, else short.
func Times(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// Seed returns the seed of tb, which a failing test prints.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	v, err := parse(os.Getenv(Setting))
	if err != nil {
		tb.Fatalf("%s: %v", Setting, err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%s=%d repeats this", Setting, v)
		}
	})
	return v
}

// Rand returns random numbers from Seed; streams differ from each other.
func Rand(tb testing.TB, stream uint64) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Seed(tb), stream))
}

// Seeds returns n seeds, for tests that try that many, from Seed on.
func Seeds(tb testing.TB, n uint64) iter.Seq[uint64] {
	tb.Helper()
	v := Seed(tb)
	return func(yield func(uint64) bool) {
		for i := range n {
			if !yield(v + i) {
				return
			}
		}
	}
}

func parse(setting string) (uint64, error) {
	switch setting {
	case "":
		return 1, nil
	case "random":
		var b [4]byte // short enough to be typed
		_, _ = crand.Read(b[:])
		return uint64(binary.LittleEndian.Uint32(b[:])), nil
	}
	return strconv.ParseUint(setting, 10, 64)
}
