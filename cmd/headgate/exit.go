package main

import "fmt"

// Exit codes.
const (
	exitOK        = 0
	exitProblems  = 1
	exitError     = 2
	exitOverLimit = 3
	exitNo        = 3 // what was asked is not so
	exitDiffers   = 4
)

// An exitCode ends the program with a code of its own, without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// probe annotates commands that exit with 0 or 1 only, whatever the error:
// some that run them take 2 for something else.
const probe = "probe"
