package settings

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// A stuckReader takes lines when it is read.
type stuckReader struct {
	mu    sync.Mutex // held while nobody reads
	lines bytes.Buffer
}

func (s *stuckReader) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.Write(lines)
}

func (s *stuckReader) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.String()
}

// A log that nobody reads delays no caller. Later it has the lines that had room, and the number of those lost.
func TestALogThatNobodyReadsKeepsNobodyWaiting(t *testing.T) {
	for _, format := range []string{"text", "json", LogrusFormat} {
		out := new(stuckReader)
		log := (&Log{Level: "info", Format: format}).Logger(out, nil)
		log.Info("at once")
		if !strings.Contains(out.String(), "at once") {
			t.Errorf("%s: %s", format, out)
		}
		out.mu.Lock()
		began := time.Now()
		const lines = 2000
		filler := strings.Repeat("x", 1000)
		for i := range lines {
			log.Info("unread", "n", i, "filler", filler)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: %d lines took %v", format, lines, took)
		}
		out.mu.Unlock()
		has := func(part string) (text string) {
			for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				if text = out.String(); strings.Contains(text, part) {
					return text
				}
				if time.Now().After(until) {
					t.Fatalf("%s: the log has no %q", format, part)
				}
			}
		}
		text := has("lines_lost")
		if n := strings.Count(text, "unread"); n < 500 || n > 1100 || strings.Count(text, "\n") != n+2 {
			t.Errorf("%s: %d of %d lines, of which 1 MiB may wait", format, n, lines)
		}
		log.Info("read again")
		if text = has("read again"); !strings.HasSuffix(text, "\n") {
			t.Errorf("%s: the log ends with %s", format, text[len(text)-100:])
		}
	}
}

// A fullDisk takes so many bytes, and fails then.
type fullDisk struct {
	room  int
	lines bytes.Buffer
}

func (d *fullDisk) Write(lines []byte) (int, error) {
	n := min(d.room, len(lines))
	d.room -= n
	d.lines.Write(lines[:n])
	if n < len(lines) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// The log says how many lines could not be written as soon as it can, each line is whole or ends at a line's end, and
// a metric has the number meanwhile.
func TestALogThatCannotBeWrittenCountsItsLines(t *testing.T) {
	for _, format := range []string{"text", "json", LogrusFormat} {
		disk := &fullDisk{room: 1 << 20}
		c := &Log{Level: "info", Format: format}
		lost := c.Lost()
		log := c.Logger(disk, nil)
		log.Info("before")
		disk.room = 20 // of one more line
		for range 7 {
			log.Info("while the disk is full")
		}
		if n := lost.Value(); n != 7 {
			t.Errorf("%s: the metric says %v lost lines, want 7", format, n)
		}
		disk.room = 1 << 20
		log.Info("after")
		log.Info("last")
		lines := strings.Split(disk.lines.String(), "\n")
		if len(lines) != 6 || !strings.Contains(lines[0], "before") || len(lines[1]) != 20 ||
			!strings.Contains(lines[2], "lines_lost") || !strings.Contains(lines[2], "7") ||
			!strings.Contains(lines[3], "after") || !strings.Contains(lines[4], "last") || lines[5] != "" {
			t.Errorf("%s: the log is\n%s", format, &disk.lines)
		}
		if n := lost.Value(); n != 7 {
			t.Errorf("%s: later the metric says %v lost lines, want 7", format, n)
		}
	}
}
