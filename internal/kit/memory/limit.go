package memory

import (
	"bytes"
	"cmp"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// A Limit is how much memory and how many files the process may use.
type Limit struct {
	Bytes int64  // math.MaxInt64 if nothing bounds it
	From  string // what bounds it: a file of the system, or GOMEMLIMIT
	Files int64  // open at a time, connections included; math.MaxInt64 if nothing bounds it
}

// Read returns the least of the limits of the process's own control group and its parents (cgroup v1 and v2), of the
// machine's memory, and of GOMEMLIMIT; and the limit of files. root is where the system's files are: "/" but for tests.
func Read(root string) Limit {
	least := Limit{Bytes: math.MaxInt64, Files: files(root)}
	take := func(l Limit) {
		if l.Bytes > 0 && l.Bytes < least.Bytes {
			least.Bytes, least.From = l.Bytes, l.From
		}
	}
	take(machine(root))
	for _, dir := range groups(root) {
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			text, err := os.ReadFile(filepath.Join(root, dir, name))
			if n, bad := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && bad == nil {
				take(Limit{Bytes: n, From: filepath.Join("/", dir, name)})
			}
		}
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		take(Limit{Bytes: debug.SetMemoryLimit(-1), From: "GOMEMLIMIT"})
	}
	return least
}

// machine returns the memory of the machine.
func machine(root string) Limit {
	return Limit{Bytes: number(root, "proc/meminfo", "MemTotal:") << 10, From: "/proc/meminfo"}
}

// files returns how many files the process may have open: the soft limit, which Go raises to the hard one at start.
func files(root string) int64 {
	return cmp.Or(number(root, "proc/self/limits", "Max open files"), math.MaxInt64)
}

// number returns the number after the label in a file of the kernel, or 0 if the file has no such line.
func number(root, name, label string) int64 {
	text, _ := os.ReadFile(filepath.Join(root, name)) // systems other than Linux have no such file
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, label); ok {
			word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, _ := strconv.ParseUint(word, 10, 53)
			return int64(n)
		}
	}
	return 0
}

// groups returns the directories of the process's control groups that can have a limit of memory, and of their parents.
func groups(root string) (dirs []string) {
	mounts, _ := os.ReadFile(filepath.Join(root, "proc/self/mountinfo")) // none: no groups
	own, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(mounts)) {
		// ID parent major:minor ROOT MOUNTPOINT options … - type source superoptions
		before, after, _ := strings.Cut(line, " - ")
		at, kind := strings.Fields(before), strings.Fields(after)
		if len(at) < 5 || len(kind) < 3 {
			continue
		}
		controller := ""
		switch {
		case kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), "memory"):
			controller = "memory"
		case kind[0] != "cgroup2":
			continue
		}
		top := unescape(at[4])
		// A container sees its own group as the root of the mount.
		inside, ok := strings.CutPrefix(groupOf(string(own), controller), strings.TrimSuffix(unescape(at[3]), "/"))
		if !ok || strings.Contains(inside, "..") {
			inside = ""
		}
		for dir := filepath.Join(top, inside); ; dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
			if dir == filepath.Clean(top) || dir == "/" || dir == "." {
				break
			}
		}
	}
	return dirs
}

// groupOf returns the path of the process's group: of version 2 if controller is empty.
func groupOf(own, controller string) string {
	for line := range strings.Lines(own) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 &&
			slices.Contains(strings.Split(parts[1], ","), controller) {
			return parts[2]
		}
	}
	return ""
}

// unescape replaces what mountinfo has for a space.
func unescape(path string) string { return strings.ReplaceAll(path, `\040`, " ") }

// Least is the memory, in bytes, below which headgate may fail under load.
const Least = 128 << 20

// forCollector is the part of a limit, in tenths, that Go's collector keeps the process below.
const forCollector = 9

// HoldCollector sets the limit of Go's collector, and returns it. If GOMEMLIMIT is set, that stays.
func (l Limit) HoldCollector() int64 {
	if os.Getenv("GOMEMLIMIT") == "" && l.Bytes != math.MaxInt64 {
		debug.SetMemoryLimit(l.Bytes / 10 * forCollector)
	}
	return debug.SetMemoryLimit(-1)
}

// Pool returns a pool of a quarter of the limit, and of [DefaultPool] at most.
func (l Limit) Pool() *Pool { return NewPool(min(DefaultPool, l.Bytes/4)) }

// LeastFiles are the files that a process with many clients should be able to open, and ownFiles those that it may
// need without any.
const (
	LeastFiles = 1024
	ownFiles   = 32
)

// Connections returns how many connections of so many bytes have room in an eighth of the memory and in so many
// sixteenths of the files: most at most. All listeners together must leave files for stores and rules: if clients held
// all files, no store could be dialed.
func (l Limit) Connections(most int, each, sixteenths int64) int {
	return int(min(int64(most), max(l.Bytes/8/each, 1), max((l.Files-ownFiles)/16*sixteenths, 1)))
}
