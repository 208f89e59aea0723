//go:build !rlsonly

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/replay"
	"github.com/headgate-rls/headgate/internal/kit/units"
)

// replayFlags are the flags of `headgate replay`.
type replayFlags struct {
	replay.Options
	rules, against      []string
	warm, hold, reorder string
	allow, page         string
	format              *format
	allowed             replay.Allowance
	reorderGiven        bool
}

func replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --rules NEW [--against OLD] FILE…",
		Short: "Decide requests of the past by new rules, and show what changes",
		Long: `Decide the requests in files again, by new rules and by the rules before, and show which rules and
which keys refuse more. Without --against, the lines say what was answered before.

Files are captures of headgate (serve --capture, headgate capture), or access logs with --domain and
--descriptor: the default formats of Envoy and Istio in text, those of Envoy Gateway, Envoy AI Gateway
and Istio in JSON, and other JSON with --time. A line of the output says what a file is read as. Fields of
formats in text are named as in Istio's JSON: path, x_forwarded_for, downstream_remote_address. Files may
be gzipped, or pipes; - is standard input. Times are virtual: the answers depend on the files only.

It takes memory for the counters of each set of rules, some 240 bytes each: those of keys that were
asked about and have not expired, at most --max-keys; for newly refused keys; 64 MiB for lines that
are like others; and for the lines that --reorder has wait.

Clients that retry after a refusal are not modelled: the requests are those of the files.

The exit code is 0 if no more is refused than --allow says, 3 if more is, 1 if the input is wrong,
and 2 if a file cannot be read.`,
		Example: `  headgate replay --rules next/ --against live/ capture.jsonl.gz
  headgate replay --rules next/ --against live/ --domain shop \
    --descriptor 'tenant={tenant},path={path|no-query}' --time start --duration ms access.log
  headgate replay --rules next/ --domain shop \
    --descriptor 'remote_address={downstream_remote_address|no-port}' istio-proxy.log
  headgate replay --rules next/ --allow newly-refused=0.1% --html report.html capture.jsonl`,
		Args: atLeast(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Files, f.Stdin = args, cmd.InOrStdin()
			f.reorderGiven = cmd.Flags().Changed("reorder")
			if err := f.read(); err != nil {
				return wrongInput(err)
			}
			f.Progress = progressTo(cmd.ErrOrStderr())
			report, err := replay.Run(cmd.Context(), f.Options)
			if f.Progress != nil {
				f.Progress("", 0, 0, 0)
			}
			if err != nil {
				return wrongInput(err)
			}
			return f.finish(cmd.OutOrStdout(), report)
		},
	}
	f.define(cmd)
	return cmd
}

func (f *replayFlags) define(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.rules, "rules", nil, "`file or directory` with the new rules; may be repeated")
	fs.StringArrayVar(&f.against, "against", nil, "`file or directory` with the rules before; may be repeated "+
		"(default: what the lines say)")
	fs.StringVar(&f.Log.Domain, "domain", "", "`domain` of the requests in an access log")
	fs.StringArrayVar(&f.Log.Descriptors, "descriptor", nil,
		"`descriptor` to make of a line of an access log: KEY={field},…; {field|no-query} cuts off what begins with ?, "+
			"no-port the port of an address, first and last take an element of a list, network:24 makes 10.1.2.0/24 of an "+
			"address (network:24/64 with IPv6), lower makes letters small; may be repeated")
	fs.StringVar(&f.Log.Time, "time", "", "`field` of an access log with the time at which a request began (default: "+
		"start_time, if the form is known)")
	fs.StringVar(&f.Log.Duration, "duration", "", "`field` of an access log with the duration in milliseconds (default: "+
		"duration, if the form is known)")
	fs.StringVar(&f.Log.Cost, "cost", "", "`field` of an access log with the cost (default: each request costs 1)")
	fs.StringVar(&f.reorder, "reorder", "", "by how much lines may be out of order, a `duration` (default 1m of "+
		"access logs with durations, else 0)")
	fs.TimeVar(&f.From, "from", time.Time{}, rfc3339, "leave out what was before this `time`, as 2026-01-31T12:00:00Z")
	fs.TimeVar(&f.To, "to", time.Time{}, rfc3339, "leave out what was at this `time` and after it")
	fs.StringVar(&f.warm, "warm", "", "decide the first part of the time and do not report it, a `duration`; with "+
		"--from it is the time before that")
	fs.StringVar(&f.hold, "hold", "", "how long requests are in flight whose end no line says, a `duration` (default: "+
		"as long as others on average)")
	fs.IntVar(&f.Top, "top", 10, "`number` of keys to show")
	fs.IntVar(&f.MaxBad, "max-bad", 100, "`number` of lines that may be broken")
	fs.IntVar(&f.MaxKeys, "max-keys", 1_000_000, "`number` of counters to keep")
	fs.StringVar(&f.allow, "allow", "newly-refused=0", "what may be refused that was not before: newly-refused=N or "+
		"newly-refused=N% of the requests")
	f.format = defineFormat(cmd)
	fs.StringVar(&f.page, "html", "", "also write a page with curves to this `file`")
}

// read reads the flags' values, and the rules.
func (f *replayFlags) read() (err error) {
	if f.allowed, err = replay.ParseAllowance(f.allow); err != nil {
		return fmt.Errorf("--allow: %w", err)
	}
	if len(f.rules) == 0 {
		return errors.New("--rules is missing: the files of the new rules")
	}
	if !f.reorderGiven {
		f.Ended = time.Minute
	}
	for _, d := range []struct {
		name, text string
		to         *time.Duration
	}{{"reorder", f.reorder, &f.Reorder}, {"warm", f.warm, &f.Warm}, {"hold", f.hold, &f.Hold}} {
		if d.text == "" || d.text == "0" {
			continue
		}
		if *d.to, err = units.ParseDuration(d.text); err != nil || *d.to < 0 {
			return fmt.Errorf("--%s: %q is not a duration such as 500ms, 5m or 1h", d.name, d.text)
		}
	}
	if f.New, _, err = files.Load(f.rules, rulefile.Options{}); err != nil {
		return fmt.Errorf("--rules: %w", err)
	}
	if len(f.against) > 0 {
		if f.Old, _, err = files.Load(f.against, rulefile.Options{}); err != nil {
			return fmt.Errorf("--against: %w", err)
		}
	}
	return nil
}

// finish writes the report. The error is the exit code, if too much is refused.
func (f *replayFlags) finish(out io.Writer, r *replay.Report) error {
	if err := replay.WriteText(f.format.writer(out, r), r); err != nil {
		return err
	}
	if f.page != "" {
		if err := writePage(f.page, r); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	return exitIf(f.allowed.Exceeded(r.NewlyRefused, r.Requests), exitNo)
}

func writePage(name string, r *replay.Report) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(replay.WriteHTML(file, r), file.Close())
}

// progressTo returns a function that shows progress on out; nil if out is not a terminal.
func progressTo(out io.Writer) func(pass string, read, total, requests int64) {
	file, ok := out.(*os.File)
	if !ok || !isTerminal(file) {
		return nil
	}
	return func(pass string, read, total, requests int64) {
		text := ""
		if pass != "" {
			text = fmt.Sprintf("%s: %d requests", pass, requests)
			if total > 0 {
				text += fmt.Sprintf(", %d %% of the files", read*100/total)
			}
		}
		fmt.Fprintf(file, "\r\x1b[K%s", text)
	}
}
