package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/slots"
)

type slotOptions struct {
	slotAPI
	at, config string
}

const slotHelp = `

The same event gets the same slot, whatever it asks for the next time. Of a service
with --slots-auth it is asked with the token in HEADGATE_ADMIN_TOKEN, or with a client
certificate. The exit code is 0 with a slot, 3 if the service says that asking again
later is worth it, as when no window has room, and 2 if there is no answer.`

func slotCommand() *cobra.Command {
	return assignCommand(&cobra.Command{
		Use:   "slot EVENT_ID",
		Short: "Ask a running service for a slot",
		Long:  "Ask a running service for a slot, and print it; slots assign asks for many." + slotHelp,
		Example: `  headgate slot pay-123
  headgate slot pay-123 --at 2026-12-01T09:00:00Z --config high-priority`,
		Args: exactly(1),
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
	opt.define(cmd, slotAddress())
	cmd.Flags().StringVar(&opt.at, "at", "", "earliest `time` that will do, RFC 3339 (default: now)")
	cmd.Flags().StringVar(&opt.config, "config", "", "`name` of the config (default: the service's default)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return assignSlots(cmd.Context(), cmd.OutOrStdout(), args, &opt)
	}
	return cmd
}

type slotAsk struct {
	EventID       string `json:"eventId"`
	ConfigName    string `json:"configName,omitempty"`
	RequestedTime string `json:"requestedTime"`
}

type slotResult struct {
	Status        int    `json:"status"`
	EventID       string `json:"eventId"`
	ScheduledTime string `json:"scheduledTime"`
	DelayMs       int64  `json:"delayMs"`
	Replayed      bool   `json:"replayed"`
	Message       string `json:"message"`
	RetryAfter    int64  `json:"retryAfter"`
}

// assignSlots asks for the events, as many at once as the service takes, and prints
// what becomes of each.
func assignSlots(ctx context.Context, out io.Writer, events []string, opt *slotOptions) error {
	if opt.at == "" {
		opt.at = time.Now().UTC().Format(time.RFC3339Nano)
	}
	worst := exitOK
	for batch := range slices.Chunk(events, slots.MaxBatch) {
		asks := make([]slotAsk, len(batch))
		for i, event := range batch {
			asks[i] = slotAsk{event, opt.config, opt.at}
		}
		var answer struct {
			Results []slotResult `json:"results"`
		}
		err := opt.call(ctx, http.MethodPost, "/api/v1/slots:batch", map[string]any{"events": asks}, &answer)
		var failure *apiError
		switch {
		case errors.As(err, &failure) && failure.code == http.StatusServiceUnavailable:
			fmt.Fprintf(out, "%s retry-after=%ss\n", failure.message, failure.retryAfter)
			return exitCode(exitOverLimit)
		case err != nil:
			return err
		case len(answer.Results) != len(batch):
			return fmt.Errorf("the answer has %d results for %d events", len(answer.Results), len(batch))
		}
		for _, r := range answer.Results {
			worst = worseExit(worst, r.print(out))
		}
	}
	if worst != exitOK {
		return exitCode(worst)
	}
	return nil
}

// print writes a line and returns the exit code for it.
func (r *slotResult) print(out io.Writer) int {
	switch r.Status {
	case http.StatusOK:
		replayed := ""
		if r.Replayed {
			replayed = " replayed"
		}
		fmt.Fprintf(out, "%s scheduled=%s delay=%v%s\n", r.EventID, r.ScheduledTime, time.Duration(r.DelayMs)*time.Millisecond, replayed)
		return exitOK
	case http.StatusServiceUnavailable:
		fmt.Fprintf(out, "%s none: %s retry-after=%ds\n", r.EventID, r.Message, r.RetryAfter)
		return exitOverLimit
	}
	fmt.Fprintf(out, "%s none: %d %s: %s\n", r.EventID, r.Status, http.StatusText(r.Status), r.Message)
	return exitError
}

// worseExit is an error if one of the two is, whatever the other is.
func worseExit(a, b int) int {
	if a == exitError || b == exitError {
		return exitError
	}
	return max(a, b)
}
