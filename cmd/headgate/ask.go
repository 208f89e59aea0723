package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/ratelimit"
)

type askOptions struct {
	dialOptions
	rules []string
	count int
	hits  uint32
}

func askCommand() *cobra.Command {
	var opt askOptions
	cmd := &cobra.Command{
		Use:   "ask DOMAIN KEY=VALUE[,KEY=VALUE…] […]",
		Short: "Ask a running service, or rules in files, as Envoy would",
		Long: `Ask a running service, or rules in files, as Envoy would.

Each KEY=VALUE list is one descriptor. A comma in a value is written \,

One line is printed per answer. The exit code is 0 if every answer was OK,
3 if one was over the limit, 2 if one could not be had.`,
		Example: `  headgate ask example client=alice
  headgate ask shop tenant=acme,path=/pay tenant=acme -n 5
  headgate ask shop tenant=acme --rules rules/ -n 700`,
		Args: atLeast(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), cmd.OutOrStdout(), args[0], args[1:], opt)
		},
	}
	f := cmd.Flags()
	opt.define(f)
	f.StringArrayVar(&opt.rules, "rules", nil, "decide by the rules in this `file or directory`, without a service")
	f.IntVarP(&opt.count, "count", "n", 1, "how often to ask")
	f.Uint32Var(&opt.hits, "hits", 1, "hits of each request")
	cmd.MarkFlagsMutuallyExclusive("addr", "rules")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	return cmd
}

// An asker answers one request.
type asker func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error)

func ask(ctx context.Context, out io.Writer, domain string, args []string, opt askOptions) error {
	req := &rls.RateLimitRequest{Domain: domain, HitsAddend: opt.hits}
	for _, arg := range args {
		d, err := parseDescriptor(arg)
		if err != nil {
			return err
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	answer, closer, err := opt.asker()
	if err != nil {
		return err
	}
	defer closer()
	over := false
	for range opt.count {
		callCtx, cancel := context.WithTimeout(ctx, opt.timeout)
		resp, err := answer(callCtx, req)
		cancel()
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		fmt.Fprintln(out, answerLine(req, resp))
		over = over || resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT
	}
	if over {
		return exitCode(exitOverLimit)
	}
	return nil
}

func (opt *askOptions) asker() (asker, func(), error) {
	if len(opt.rules) > 0 {
		answer, err := localAsker(opt.rules)
		return answer, func() {}, err
	}
	conn, err := opt.dial()
	if err != nil {
		return nil, nil, err
	}
	client := rls.NewRateLimitServiceClient(conn)
	answer := func(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		resp, err := client.ShouldRateLimit(ctx, req)
		if err != nil {
			return nil, opt.explain(err)
		}
		return resp, nil
	}
	return answer, func() { _ = conn.Close() }, nil
}

// localAsker answers from rules in files and a memory of its own.
func localAsker(paths []string) (asker, error) {
	set, err := loadRules(paths, false)
	if err != nil {
		return nil, err
	}
	be := memory.New(memory.Config{})
	s, err := ratelimit.New(ratelimit.Config{
		Backend: be, Caps: memory.Caps(), Local: be,
		Now: newClock().now, Log: slog.New(slog.DiscardHandler),
	}, set)
	if err != nil {
		return nil, err
	}
	return s.ShouldRateLimit, nil
}

// parseDescriptor reads "key=value,key=value"; "\," is a comma in a value.
func parseDescriptor(arg string) (*common.RateLimitDescriptor, error) {
	d := new(common.RateLimitDescriptor)
	const comma = "\x00"
	for part := range strings.SplitSeq(strings.ReplaceAll(arg, `\,`, comma), ",") {
		key, value, ok := strings.Cut(strings.ReplaceAll(part, comma, ","), "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("descriptor %q: %w", arg, errors.New("want KEY=VALUE[,KEY=VALUE…]"))
		}
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d, nil
}

// answerLine renders an answer in one line.
func answerLine(req *rls.RateLimitRequest, resp *rls.RateLimitResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s", resp.OverallCode)
	meta := resp.GetDynamicMetadata().GetFields()
	if rule := meta["rule"].GetStringValue(); rule != "" {
		fmt.Fprintf(&b, " rule=%s", rule)
	}
	if how := meta["degraded"].GetStringValue(); how != "" {
		fmt.Fprintf(&b, " degraded=%s", how)
	}
	for i, st := range resp.Statuses {
		b.WriteString(" [")
		for j, e := range req.Descriptors[i].Entries {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%s=%s", e.Key, e.Value)
		}
		b.WriteString(statusText(st))
		b.WriteByte(']')
	}
	return b.String()
}

func statusText(st *rls.RateLimitResponse_DescriptorStatus) string {
	l := st.CurrentLimit
	switch {
	case l == nil && st.LimitRemaining > 0:
		return " unlimited"
	case l == nil:
		return " no limit"
	}
	unit := strings.ToLower(l.Unit.String())
	if n := l.GetUnitMultiplier().GetValue(); n > 1 {
		unit = fmt.Sprintf("%d %ss", n, unit)
	}
	if l.Unit == rls.RateLimitResponse_RateLimit_UNKNOWN {
		unit = "window"
	}
	name := ""
	if l.Name != "" {
		name = " " + l.Name
	}
	wait := "reset"
	if st.Code == rls.RateLimitResponse_OVER_LIMIT {
		wait = "retry"
	}
	return fmt.Sprintf(" %s%s limit=%d/%s remaining=%d %s=%ds", st.Code, name, l.RequestsPerUnit, unit,
		st.LimitRemaining, wait, st.GetDurationUntilReset().GetSeconds())
}
