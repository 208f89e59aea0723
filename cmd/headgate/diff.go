//go:build !rlsonly

package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/candidate"
	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/app/replay"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/units"
)

// diffFlags are the flags of `headgate diff`.
type diffFlags struct {
	api           client.API
	since, failOn string
	format        *format
	top           int
	watch         bool
	every         time.Duration
	allowed       replay.Allowance
}

func diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show what the rules of serve --candidate refuse on live traffic, beside the live rules",
		Long: `Show what a running process has counted of its live rules and of those on trial (serve --candidate):
which rules refuse how much, and which keys are newly refused. Keys are those of the last 15
minutes. Each replica counts what it decides itself.

The exit code is 3 if more is newly refused than --fail-on says, and 2 if there are no rules on
trial, if these could not be read, or if --fail-on is given and nothing was decided yet.`,
		Example: `  headgate diff --watch
  headgate diff --since 1h --fail-on newly-refused=0.1%`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return wrongInput(err)
			}
			for {
				err := f.show(cmd)
				if !f.watch || err != nil {
					return err
				}
				if background.Sleep(cmd.Context(), f.every) != nil {
					return nil
				}
			}
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.since, "since", "1h", "how far to look back, a `duration` up to 24h")
	fs.IntVar(&f.top, "top", 10, "`number` of keys to show, at most 256")
	fs.StringVar(&f.failOn, "fail-on", "", "exit with 3 if more is newly refused: newly-refused=N or newly-refused=N% "+
		"of the requests")
	f.format = defineFormat(cmd)
	fs.BoolVar(&f.watch, "watch", false, "show it again and again")
	fs.DurationVar(&f.every, "every", 2*time.Second, "how often, with --watch")
	defineAdminAPI(cmd, &f.api)
	return cmd
}

func (f *diffFlags) check() (err error) {
	if d, err := units.ParseDuration(f.since); err != nil || d <= 0 || d > 24*time.Hour {
		return fmt.Errorf("--since: %q is not a duration up to 24h, such as 1h", f.since)
	}
	switch {
	case f.top < 0 || f.top > 256:
		return fmt.Errorf("--top: %d is outside 0 to 256", f.top)
	case f.every < 100*time.Millisecond:
		return fmt.Errorf("--every: %v is less than 100ms", f.every)
	case f.failOn == "":
		return nil
	case f.watch:
		return errors.New("--watch and --fail-on exclude each other")
	}
	if f.allowed, err = replay.ParseAllowance(f.failOn); err != nil {
		return fmt.Errorf("--fail-on: %w", err)
	}
	return nil
}

// show prints the comparison once. It returns an error if --fail-on is exceeded or if there is no comparison.
func (f *diffFlags) show(cmd *cobra.Command) error {
	var d candidate.Answer
	query := url.Values{"since": {f.since}, "top": {strconv.Itoa(f.top)}}
	if err := f.api.Get(cmd.Context(), "/admin/candidate", query, &d); err != nil {
		return err
	}
	out := f.format.writer(cmd.OutOrStdout(), &d)
	if f.watch && isTerminal(out) {
		fmt.Fprint(out, "\x1b[H\x1b[J")
	}
	if err := showDiff(out, &d); err != nil {
		return err
	}
	switch {
	case d.Error != "":
		return fmt.Errorf("the last rules of --candidate could not be put on trial: %s", d.Error)
	case !d.Deciding:
		return errors.New("no rules are on trial: the files of serve --candidate have none")
	case f.failOn != "" && d.Requests == 0:
		return errors.New("nothing was decided yet")
	case f.failOn != "" && f.allowed.Exceeded(d.NewlyRefused, d.Requests):
		return exitCode(exitNo)
	}
	return nil
}

func showDiff(out io.Writer, d *candidate.Answer) error {
	if !d.Deciding {
		return nil
	}
	fmt.Fprintf(out, "%s since %s: the live rules refused %d, those on trial %d: %d newly refused, %d newly admitted\n",
		spell.Count(int(d.Requests), "request"), instant(*d.Since), d.RefusedOld, d.RefusedNew,
		d.NewlyRefused, d.NewlyAdmitted)
	if d.Sample < 1 {
		fmt.Fprintf(out, "note: these are a part of %v of the keys\n", d.Sample)
	}
	if d.Dropped+d.Failed > 0 {
		fmt.Fprintf(out, "note: since the start, %d were dropped because too many waited, and %d could not be decided\n",
			d.Dropped,
			d.Failed)
	}
	if d.Forgotten > 0 {
		fmt.Fprintf(out, "note: %d counters were dropped for want of room, so the figures are not exact: use "+
			"--candidate-sample, "+
			"or --candidate-store backend\n", d.Forgotten)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(d.Rules) > 0 {
		fmt.Fprintln(w, "\nRULE\tREFUSED LIVE\tON TRIAL\tCHANGE")
	}
	for _, r := range d.Rules {
		fmt.Fprintf(w, "%s\t%d\t%d\t%+d\n", oneWord(r.Rule), r.RefusedOld, r.RefusedNew, r.Change)
	}
	if len(d.Keys) > 0 {
		fmt.Fprintln(w, "\nKEY\tRULE\tLIMIT\tNEWLY REFUSED")
	}
	for _, k := range d.Keys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", spell.Short(k.Key), oneWord(k.Rule), k.Limit, k.NewlyRefused)
	}
	return w.Flush()
}
