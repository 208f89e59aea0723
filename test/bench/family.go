package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// familyCPU returns the CPU time that this process, "self", and the servers that it has started,
// by their names in /proc, have used so far. Processes that have ended count with their parents.
func familyCPU() (map[string]time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	type member struct {
		name   string
		parent int
		used   time.Duration
	}
	all := map[int]member{}
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		text := string(data)
		first, last := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
		// After the name in parentheses: state, parent, ...; utime, stime and those of children
		// that have ended are the 12th to the 15th.
		fields := strings.Fields(text[last+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || first < 0 || len(fields) < 15 {
			return nil, fmt.Errorf("%s is not as expected", file)
		}
		m := member{name: text[first+1 : last]}
		m.parent, _ = strconv.Atoi(fields[1])
		own := fields[11:15]
		if pid == os.Getpid() {
			m.name, own = "self", fields[11:13]
		}
		for _, field := range own {
			n, _ := strconv.ParseInt(field, 10, 64)
			m.used += time.Duration(n) * clockTick
		}
		all[pid] = m
	}
	cpu := map[string]time.Duration{}
	for pid, m := range all {
		at := pid
		for at > 1 && at != os.Getpid() {
			at = all[at].parent
		}
		if at == os.Getpid() {
			cpu[m.name] += m.used
		}
	}
	return cpu, nil
}
