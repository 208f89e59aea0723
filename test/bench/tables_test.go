package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

// envProgram makes the test binary the benchmark itself: cases are served by
// processes that run the same binary.
const envProgram = "HEADGATE_BENCH_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(envProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rowsOf are the beginnings of the lines that a table must have, and how many
// figures follow on each.
func rowsOf(table string) (rows []string, figures int) {
	switch table {
	case "closed":
		for _, c := range cases {
			rows = append(rows, c.name)
		}
		return rows, 8
	case "batch":
		return batchCases, 9
	case "slices":
		for _, c := range sliceCases() {
			rows = append(rows, c.name)
		}
		return rows, 6
	case "contention":
		for _, name := range contentionCases {
			rows = append(rows, name, name)
		}
		return rows, 4
	case "distance":
		for range distances {
			for _, c := range distanceCases {
				rows = append(rows, c.name)
			}
		}
		return rows, 7
	case "open":
		for _, o := range openCases() {
			rows = append(rows, o.name)
		}
		return rows, 5
	case "reload":
		for _, c := range reloadCases {
			rows = append(rows, c.name)
		}
		return rows, 5
	case "log":
		return []string{"list", "list", "list", "zset", "zset", "zset"}, 5
	case "modes":
		for _, m := range modes() {
			rows = append(rows, m.name)
		}
		return rows, 5
	case "leases": // the last row of each store says how many leases expired
		return []string{"memory", "memory", "memory", "memory", "redis", "redis", "redis", "redis", "sqlite", "sqlite",
			"postgres", "postgres", "mariadb", "mariadb", "dynamodb", "dynamodb"}, 3
	case "reservations":
		return []string{"memory", "memory", "memory", "redis", "redis", "redis"}, 4
	case "envoy":
		return []string{"none", cases[0].name, "memory, grpc-go", "memory fixed_window", "redis fixed_window"}, 7
	case "slots":
		for _, way := range []string{"sqlite %s tx", "postgres %s tx", "mariadb %s tx"} {
			rows = append(rows, fmt.Sprintf(way, "burst"), fmt.Sprintf(way, "spread"))
		}
		return rows, 4
	case "keys":
		for _, store := range []string{"", "redis ", "sqlite ", "postgres ", "mariadb "} {
			for _, a := range keyedAlgorithms {
				rows = append(rows, store+a.String())
			}
			if store == "redis " {
				rows = append(rows, "as envoyproxy/ratelimit")
			}
		}
		return rows, 2
	case "middleware":
		checks := []string{"headgate/token_bucket", "headgate/fixed_window", "httprate", "ulule", "throttled"}
		return slices.Concat(checks, checks, []string{"tollbooth"}), 5
	case "flame":
		return []string{"where the CPU time of redis fixed_window is spent,"}, 1
	case "day":
		return []string{"sqlite", "postgres"}, 12
	case "notify":
		for range notifyLoads {
			for _, way := range notifyWays {
				rows = append(rows, way.name)
			}
		}
		return rows, 11
	case "dynamodb":
		for _, l := range dynamoLoads {
			rows = append(rows, "dynamodb "+l.name)
		}
		return rows, 5
	case "overview":
		for _, c := range overviewCases {
			rows = append(rows, "| "+c.name)
		}
		return rows, 4
	case "curve":
		for _, db := range []string{"sqlite", "postgres", "mariadb"} {
			rows = append(rows, db+" closed")
			for _, share := range curveShares {
				rows = append(rows, fmt.Sprintf("%s %.0f%%", db, share*100))
			}
		}
		return rows, 5
	case "databases":
		for _, db := range []string{"sqlite", "postgres", "mariadb"} {
			for _, l := range limitLoads {
				if db != "mariadb" || l.parameter != "commit=relaxed" {
					rows = append(rows, db+" "+l.name)
				}
			}
		}
		return rows, 6
	}
	return nil, 0
}

// A figure, also one that cannot be told in so short a time: shares of a CPU
// time of 0.
var figure = regexp.MustCompile(`(?:^|\s)(-?[0-9.]+|NaN|[+-]Inf)[%,]?`)

// missingRows returns the rows that output lacks, or that lack figures.
func missingRows(output string, rows []string, figures int) (missing []string) {
	lines := strings.Split(output, "\n")
	for _, row := range rows {
		at := slices.IndexFunc(lines, func(line string) bool {
			rest, ok := strings.CutPrefix(strings.Join(strings.Fields(line), " "), row)
			return ok && len(figure.FindAllString(rest, -1)) >= figures
		})
		if at < 0 {
			missing = append(missing, row)
			continue
		}
		lines[at] = ""
	}
	return missing
}

// longTables need more servers than others, or build a module of their own.
var longTables = []string{"notify", "leases", "databases", "dynamodb", "middleware"}

// TestEachTableHasItsRows spends next to no time on each figure.
func TestEachTableHasItsRows(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Redis, Envoy and databases")
	}
	for _, table := range tableNames() {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			if slices.Contains(longTables, table) && !random.Long() {
				t.Skip("takes long; the long form of tests has it")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			args := []string{"-tiny", "-tables", table}
			if table == "flame" {
				dir := t.TempDir()
				try := exec.CommandContext(ctx, "perf", "record", "-q", "-e", "cpu-clock", "-o", filepath.Join(dir, "try"), "true")
				if out, err := try.CombinedOutput(); err != nil {
					t.Skipf("not run: perf cannot be had or used here: %v: %s", err, out)
				}
				args = append(args, "-run", "^redis fixed_window$", "-flame", filepath.Join(dir, "flame.svg"))
			}
			cmd := exec.CommandContext(ctx, os.Args[0], args...)
			cmd.Env = append(os.Environ(), envProgram+"=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			if strings.Contains(string(out), "not run:") {
				t.Skipf("a server is missing:\n%s", out)
			}
			rows, figures := rowsOf(table)
			if len(rows) == 0 {
				t.Fatal("it is not known which rows the table has")
			}
			if missing := missingRows(string(out), rows, figures); len(missing) > 0 {
				t.Errorf("without figures: %q, in\n%s", missing, out)
			}
		})
	}
}

func TestCheckFailsOverItsGoal(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Redis")
	}
	for goal, fails := range map[string]bool{"1h": false, "1ns": true} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-tiny", "-check", "-goal", goal)
		cmd.Env = append(os.Environ(), envProgram+"=1")
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "not found") {
			t.Skipf("a server is missing:\n%s", out)
		}
		var exit *exec.ExitError
		if fails && (!errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "not at most 1ns")) {
			t.Errorf("with a goal of %s: %v, not exit code 1:\n%s", goal, err, out)
		} else if !fails && err != nil {
			t.Errorf("with a goal of %s: %v:\n%s", goal, err, out)
		}
	}
}
