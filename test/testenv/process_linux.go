package testenv

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// dieWithParent has the kernel kill a server whose test process ended without
// cleanups, for instance because a test ran into its time limit.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

func isStopped(pid int) bool {
	state, _ := processStat(pid)
	return state == "T"
}

// isGone reports whether the process has ended. Nobody collects an orphan's status
// where there is no init: a zombie is dead enough.
func isGone(pid int) bool {
	state, _ := processStat(pid)
	return state == "" || state == "Z" || state == "X"
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for the children of process %d: %w", pid, err)
	}
	var children []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		if _, parent := processStat(child); parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}

// processStat returns the letter of the state of a process and its parent, and
// nothing if there is no such process.
func processStat(pid int) (state string, parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	// "pid (name) state parent ...", where the name may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, err = strconv.Atoi(string(fields[1]))
	if err != nil {
		return "", 0
	}
	return string(fields[0]), parent
}
