//go:build !rlsonly

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/slots"
)

type slotOptions struct {
	client.API
	at, config string
	format     *format
}

const slotHelp = `

An event keeps its slot: asking again returns the same one. For a service with
--slots-auth, set HEADGATE_ADMIN_TOKEN or give a client certificate. The exit code is
0 if every event has a slot, 3 if the service says to retry later, for example because
no window has room, 1 if an event, the time or the config is wrong, and 2 on any other
error.`

func slotCommand() *cobra.Command {
	return assignCommand(&cobra.Command{
		Use:   "slot EVENT_ID",
		Short: "Ask a running service for a slot",
		Long:  "Ask a running service for a slot, and print it; slots assign asks for many." + slotHelp,
		Example: `  headgate slot pay-123
  headgate slot pay-123 --at 2026-12-01T09:00:00Z --config high-priority`,
		Args: exactlyOne,
	})
}

func slotsAssignCommand() *cobra.Command {
	return assignCommand(&cobra.Command{
		Use:   "assign EVENT_ID…",
		Short: "Ask a running service for slots",
		Long:  "Ask a running service for slots, and print one line for each event, in order." + slotHelp,
		Example: `  headgate slots assign pay-123 pay-124 pay-125
  headgate slots assign $(cat events.txt) --at 2026-12-01T09:00:00Z --config high-priority`,
		Args: atLeast(1),
	})
}

func assignCommand(cmd *cobra.Command) *cobra.Command {
	var opt slotOptions
	opt.format = defineFormat(cmd)
	defineAPI(cmd, &opt.API, client.SlotsURL())
	cmd.Flags().StringVar(&opt.at, "at", "", "earliest `time` of the slot, RFC 3339 (default: now)")
	cmd.Flags().StringVar(&opt.config, "config", "", "`name` of the config (default: the service's default)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return assignSlots(cmd.Context(), cmd.OutOrStdout(), args, &opt)
	}
	return cmd
}

// assignSlots asks for the events, as many at once as the service takes, and prints
// what becomes of each.
func assignSlots(ctx context.Context, out io.Writer, events []string, opt *slotOptions) error {
	opt.at = cmp.Or(opt.at, time.Now().UTC().Format(time.RFC3339Nano))
	w := opt.format.list(out)
	defer func() { _ = w.end() }()
	worst := exitOK
	for batch := range slices.Chunk(events, slots.MaxBatch) {
		results, err := opt.Assign(ctx, batch, opt.config, opt.at)
		var refusal *client.Refusal
		switch {
		case errors.As(err, &refusal) && refusal.Code == http.StatusServiceUnavailable:
			fmt.Fprintf(w.text, "%s retry-after=%ss\n", refusal.Message, refusal.RetryAfter)
			_ = w.write(client.Slot{Status: refusal.Code, Message: refusal.Message, RetryAfterMs: refusal.RetryAfterMS()})
			return exitCode(worseExit(worst, exitOverLimit))
		case err != nil:
			return err
		}
		for i := range results {
			worst = worseExit(worst, printSlot(w.text, &results[i]))
			if err := w.write(&results[i]); err != nil {
				return err
			}
		}
	}
	return exitIf(worst != exitOK, worst)
}

// printSlot writes a line and returns the exit code for it.
func printSlot(out io.Writer, r *client.Slot) int {
	switch {
	case r.Status == http.StatusOK:
		replayed := ""
		if r.Replayed {
			replayed = " replayed"
		}
		fmt.Fprintf(out, "%s scheduled=%s delay=%v%s\n", r.EventID, r.ScheduledTime,
			time.Duration(r.DelayMs)*time.Millisecond, replayed)
		return exitOK
	case r.Status == http.StatusServiceUnavailable:
		fmt.Fprintf(out, "%s none: %s retry-after=%ds\n", r.EventID, r.Message, r.RetryAfterMs/1000)
		return exitOverLimit
	}
	fmt.Fprintf(out, "%s none: %d %s: %s\n", r.EventID, r.Status, http.StatusText(r.Status), r.Message)
	if r.Status >= 400 && r.Status < 500 {
		return exitProblems
	}
	return exitError
}

// worseExit returns 2 if something could not be done, else 1 if the input is wrong, else the answer.
func worseExit(a, b int) int {
	for _, code := range []int{exitError, exitProblems} {
		if a == code || b == code {
			return code
		}
	}
	return max(a, b)
}
