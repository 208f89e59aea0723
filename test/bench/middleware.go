package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// middlewareModule measures the middleware. It is a module of its own, since it needs the
// other limiters.
const middlewareModule = "tools/middleware"

// middlewareLine is a line of its benchmarks: which, name, callers or clients, and the figures.
var middlewareLine = regexp.MustCompile(`^Benchmark(Check|Middleware)/(\S+)/(?:callers|clients)=([a-z]+|\d+)\S*` +
	`\s+\d+\s+([\d.]+) ns/op\s+([\d.]+) cpu-ns/op\s+(\d+) B/op\s+(\d+) allocs/op`)

// middlewareTables are the titles of the tables, by which benchmark they are of, and who there are one or many of.
var middlewareTables = map[string][2]string{
	"Check":      {"a check of one limit of a user who passes, of 1,000, counters in memory", "callers"},
	"Middleware": {"middleware: a request that passes a limit by client address, counters in memory", "clients"},
}

// middlewareTable prints what a check and a request cost that pass, in CPU time and allocations.
func (b *bench) middlewareTable(ctx context.Context) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	dir := strings.TrimSpace(string(root)) + "/" + middlewareModule
	if out, err := exec.CommandContext(ctx, "go", "-C", dir, "mod", "download").CombinedOutput(); err != nil {
		fmt.Printf("\nmiddleware is not run: its modules cannot be downloaded: %v %s\n", err, out)
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "-C", dir, "test", "-run", "^$", "-bench", "Check|Middleware", "-benchtime",
		b.middlewareTime())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("measure in %s: %w: %s%s", middlewareModule, err, out, &stderr)
	}
	of := ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		m := middlewareLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if m[1] != of {
			of = m[1]
			fmt.Printf("\n%s\n%-28s %8s %10s %10s %8s %8s\n", middlewareTables[of][0], "module", middlewareTables[of][1],
				"CPU ns", "ns", "bytes", "allocs")
		}
		fmt.Printf("%-28s %8s %10s %10s %8s %8s\n", m[2], m[3], m[5], m[4], m[6], m[7])
	}
	return nil
}

// middlewareTime is how long each row is measured.
func (b *bench) middlewareTime() string {
	if b.length < time.Second/10 { // to see whether the table can be printed
		return "100x"
	}
	return b.length.String()
}
