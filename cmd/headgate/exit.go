package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/policies/table"
)

// Exit codes.
const (
	exitOK        = 0
	exitProblems  = 1 // the input is wrong
	exitError     = 2 // it could not be done
	exitOverLimit = 3
	exitNo        = 3 // what was asked is not so
)

// An exitCode ends the program with a code of its own, without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitIf ends the program with a code if something holds.
func exitIf(holds bool, code int) error {
	if holds {
		return exitCode(code)
	}
	return nil
}

// probe annotates commands that exit with 0 or 1 only, whatever the error:
// some that run them take 2 for something else.
const probe = "probe"

// An inputError is about what a command was given: to run it again makes no difference.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

// wrongInput is an error about the input, unless a file cannot be read.
func wrongInput(err error) error {
	if errors.As(err, new(*fs.PathError)) || errors.As(err, new(syscall.Errno)) {
		return err
	}
	return inputError{err}
}

// A notFoundError is about something that was asked for by its name and does not exist.
type notFoundError struct{ error }

// notFound turns the refusal of a name that does not exist into a notFoundError.
func notFound(err error) error {
	if refusal, ok := errors.AsType[*client.Refusal](err); ok && refusal.Code == http.StatusNotFound {
		return notFoundError{err}
	}
	return err
}

// codeOf is the exit code of an error of a command.
func codeOf(cmd *cobra.Command, err error) int {
	var code exitCode
	var refusal *client.Refusal
	switch {
	case errors.As(err, &code):
		return int(code)
	case cmd.Annotations[probe] != "", errors.As(err, new(inputError)),
		errors.As(err, new(*client.FlagError)), errors.Is(err, table.ErrInvalid):
		return exitProblems
	case errors.As(err, &refusal) && refusal.Code == http.StatusBadRequest:
		return exitProblems
	case errors.Is(err, table.ErrNotFound), errors.As(err, new(notFoundError)):
		return exitNo
	}
	return exitError
}

// drains annotates commands that need time to end after a signal, and see to it themselves that they end.
const drains = "drains"

// endsWithin is how long any other command may go on after a signal.
const endsWithin = 2 * time.Second

// whenRun has begun called when a command's work begins: what failed before is about arguments and flags. After a
// signal the work is abandoned if it does not end: code that reads a pipe or an endless file does not see signals.
func whenRun(cmd *cobra.Command, begun func()) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			begun()
			ended := make(chan error, 1)
			go func() { ended <- run(cmd, args) }()
			if cmd.Annotations[drains] == "" {
				defer context.AfterFunc(cmd.Context(), func() {
					time.Sleep(endsWithin)
					ended <- cmd.Context().Err()
				})()
			}
			return <-ended
		}
	}
	for _, sub := range cmd.Commands() {
		whenRun(sub, begun)
	}
}
