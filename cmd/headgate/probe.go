package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
)

// probeWithin bounds how long a backend may take to answer a probe.
const probeWithin = 15 * time.Second

// An ableTo is an ability of the backend as check prints it.
type ableTo struct {
	Ability string `json:"ability"`
	Error   string `json:"error,omitempty"`
	Warning string `json:"warning,omitempty"`
	Note    string `json:"note,omitempty"`
	code    int    // of the exit, because of the error
}

type abilities []ableTo

// abilities probes the backend, if that is asked for.
func (c *checkup) abilities(ctx context.Context) (all abilities, err error) {
	if !c.probe {
		return nil, nil
	}
	if !probes {
		return nil, inputError{errors.New("--probe: is not in this build (rlsonly)")}
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	found, err := stack.Probe(ctx, c.backend)
	if err != nil {
		return nil, inputError{fmt.Errorf("--backend: %w", err)}
	}
	for _, a := range found {
		able := ableTo{Ability: a.Name, Warning: a.Warning, Note: a.Note}
		if a.Err != nil {
			able.Error, able.code = a.Err.Error(), exitError
		}
		if errors.Is(a.Err, backends.ErrMisconfigured) || errors.Is(a.Err, backends.ErrDeclined) {
			able.code = exitProblems
		}
		all = append(all, able)
	}
	return all, nil
}

// print writes a line for each ability, and returns the exit code of what is wrong.
func (all abilities) print(out io.Writer, strict bool) error {
	if !probes {
		return nil
	}
	code := exitOK
	for _, a := range all {
		said := "ok"
		switch {
		case a.Error != "":
			said, code = "error: "+a.Error, a.code
		case a.Warning != "" && strict:
			code = exitProblems
			fallthrough
		case a.Warning != "":
			said = "warning: " + a.Warning
		case a.Note != "":
			said += ": " + a.Note
		}
		fmt.Fprintf(out, "backend: %s: %s\n", a.Ability, said)
	}
	return exitIf(code != exitOK, code)
}
