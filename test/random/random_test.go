package random

import (
	"slices"
	"testing"
)

func TestSeedRepeatsItsNumbers(t *testing.T) {
	for _, c := range []struct {
		setting string
		want    uint64
	}{{"", 1}, {"7", 7}, {"3854084215", 3854084215}} {
		if got, err := parse(c.setting); err != nil || got != c.want {
			t.Errorf("%q is %d, %v; want %d", c.setting, got, err, c.want)
		}
	}
	for _, wrong := range []string{"-1", "x", "Random"} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q is taken for a seed", wrong)
		}
	}
	a, _ := parse("random")
	b, _ := parse("random")
	c, _ := parse("random")
	if a == b && b == c {
		t.Errorf("three random seeds are %d", a)
	}

	t.Setenv(LongSetting, "")
	if n := Times(2, 5); n != 2 {
		t.Errorf("the short form does something %d times, want 2", n)
	}
	t.Setenv(LongSetting, "1")
	if n := Times(2, 5); n != 5 {
		t.Errorf("the long form does something %d times, want 5", n)
	}

	t.Setenv(Setting, "7")
	if got := slices.Collect(Seeds(t, 3)); !slices.Equal(got, []uint64{7, 8, 9}) {
		t.Errorf("three seeds from 7 are %v", got)
	}
	if a, b := Rand(t, 1), Rand(t, 1); a.Uint64() != b.Uint64() {
		t.Error("a seed gives other numbers the second time")
	}
	if a, b := Rand(t, 1), Rand(t, 2); a.Uint64() == b.Uint64() {
		t.Error("two streams are the same")
	}
}
