package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Test binaries of several packages write the report at once, so each engine
// has files of its own and every note is one appended line.
const (
	noteRan     = ".ran"
	noteMissing = ".missing"
)

// note appends a line to the engine's file in the report directory, if a report
// was asked for. A report that cannot be written would show an engine that ran
// as not run, so that is an error of the test.
func note(tb TB, engine, kind, text string) {
	tb.Helper()
	dir := os.Getenv(EnvReport)
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, engine+kind), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		tb.Errorf("testenv: cannot note in the report that %s was asked for: %v. Is %s an existing directory?", engine,
			err, EnvReport)
		return
	}
	_, err = fmt.Fprintf(f, "%s\n", strings.ReplaceAll(text, "\n", " "))
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Errorf("testenv: cannot note in the report that %s was asked for: %v", engine, err)
	}
}

// ran notes that the engine was started and answered.
func ran(tb TB, engine, version string) {
	tb.Helper()
	note(tb, engine, noteRan, version+"\t"+filepath.Base(os.Args[0])+"\t"+tb.Name())
}

// WriteReport prints which engines ran according to the notes in dir. It
// returns an error if one of the engines in the comma separated list demanded
// did not run.
func WriteReport(w io.Writer, dir, demanded string) error {
	must, err := mustRun(demanded)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("there is no report: %w", err)
	}
	var lost []string
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "engine\tresult\tstarts\tremark")
	for _, e := range Engines() {
		starts, err := readNotes(dir, e.Name+noteRan)
		if err != nil {
			return err
		}
		if len(starts) > 0 {
			fmt.Fprintf(table, "%s\trun\t%d\t%s, version %s\n", e.Name, len(starts), e.What,
				strings.Join(versions(starts), " and "))
			continue
		}
		missing, err := readNotes(dir, e.Name+noteMissing)
		if err != nil {
			return err
		}
		remark := "no test asked for it"
		switch {
		case len(missing) > 0:
			remark = missing[0] + " (" + e.installedBy() + ")"
		case e.dsn != "" && os.Getenv(e.dsn) == "":
			remark = "set " + e.dsn
		}
		if slices.Contains(must, e.Name) {
			lost = append(lost, e.Name)
		}
		fmt.Fprintf(table, "%s\tnot run\t-\t%s\n", e.Name, remark)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if len(lost) > 0 {
		return fmt.Errorf("these engines were demanded (%s) but no test ran on them: %s", EnvMustRun,
			strings.Join(lost, ", "))
	}
	return nil
}

// versions returns the different versions that the notes of an engine name.
func versions(starts []string) []string {
	var seen []string
	for _, line := range starts {
		v, _, _ := strings.Cut(line, "\t")
		if !slices.Contains(seen, v) {
			seen = append(seen, v)
		}
	}
	slices.Sort(seen)
	return seen
}

func readNotes(dir, name string) ([]string, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	defer f.Close()
	var lines []string
	s := bufio.NewScanner(f)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return lines, nil
}
