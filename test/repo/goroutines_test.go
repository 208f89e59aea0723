package repo

import "testing"

// TestBareGoroutines: where decisions are made a goroutine is started by package
// background only.
func TestBareGoroutines(t *testing.T) {
	const head = "package p\n\nfunc f() {\n\t"
	for body, want := range map[string]int{
		"go g()":                              1,
		"go func() {}()":                      1,
		"var wg sync.WaitGroup\n\twg.Go(g)":   1,
		"time.AfterFunc(d, g)":                1,
		"panics.Go(\"f\", g)":                 0,
		"b.cfg.Panics.AfterFunc(\"f\", d, g)": 0,
		"g()":                                 0,
	} {
		src := []byte(head + body + "\n}\n")
		for dir, n := range map[string]int{"backends/layers/coalesce": want, "internal/wire/unary": want,
			"backends/backendtest": 0, "cmd/headgate": 0} {
			if got := checkSource(dir+"/x.go", src); len(got) != n {
				t.Errorf("%s in %s: %q, want %d findings", body, dir, got, n)
			}
		}
	}
}
