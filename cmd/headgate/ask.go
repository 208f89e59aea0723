package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/metadata"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/ratelimit"
)

type askOptions struct {
	client.Options
	rules   []string
	backend string // of rules
	count   int
	hits    uint32
	counted bool
	format  *format
}

func askCommand() *cobra.Command {
	var opt askOptions
	cmd := &cobra.Command{
		Use:   "ask DOMAIN KEY=VALUE[,KEY=VALUE…] […]",
		Short: "Ask a running service, or rules in files, as Envoy would",
		Long: `Ask a running service, or rules in files, as Envoy would.

Each KEY=VALUE list is one descriptor. A comma in a value is written \,

One line is printed per answer, or with --format json an array with an element for
each. "no limit" means that no limit applies; headgate explain says why. The exit code is
0 if every answer is OK, 3 if any is OVER_LIMIT, and 2 if any request gets no answer.`,
		Example: `  headgate ask example client=alice
  headgate ask shop tenant=acme,path=/pay tenant=acme -n 5
  headgate ask shop tenant=acme --rules rules/ -n 700
  headgate ask shop tenant=acme --rules rules/ --backend postgres://headgate@db/limits`,
		Args: atLeast(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opt.count < 1 {
				return inputError{fmt.Errorf("--count: %d: want 1 or more", opt.count)}
			}
			return ask(cmd.Context(), cmd.OutOrStdout(), args[0], args[1:], opt)
		},
	}
	f := cmd.Flags()
	opt.format = defineFormat(cmd)
	defineClient(cmd, &opt.Options)
	f.StringArrayVar(&opt.rules, "rules", nil, "evaluate the rules in this `file or directory`, without a service")
	f.StringVar(&opt.backend, "backend", "memory://", "`URL` of the store that keeps the counters of --rules")
	completeBackend(cmd)
	f.IntVarP(&opt.count, "count", "n", 1, "number of requests to send")
	f.Uint32Var(&opt.hits, "hits", 0, "hits of each request; without it a request costs one, or what its rule reserves")
	f.BoolVar(&opt.counted, "counted", false, "fail unless counters decide each answer: no failure policy does, and "+
		"a rule has a limit; refusals are answers, too")
	cmd.MarkFlagsMutuallyExclusive("addr", "rules")
	return cmd
}

// An asker answers one request.
type asker func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error)

func ask(ctx context.Context, out io.Writer, domain string, args []string, opt askOptions) error {
	req := &rls.RateLimitRequest{Domain: domain, HitsAddend: opt.hits}
	for _, arg := range args {
		d, err := client.ParseDescriptor(arg)
		if err != nil {
			return inputError{err}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	answer, closer, err := opt.asker(ctx, domain)
	if err != nil {
		return err
	}
	defer closer()
	over, w := false, opt.format.list(out)
	defer func() { _ = w.end() }()
	for range opt.count {
		callCtx, cancel := context.WithTimeout(ctx, opt.Timeout)
		resp, err := answer(callCtx, req)
		cancel()
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		a := client.AnswerOf(req, resp)
		if a.NoDomain != "" {
			return notFoundError{fmt.Errorf("%q: %s", domain, a.NoDomain)}
		}
		fmt.Fprintln(w.text, a.Line())
		if err := w.write(a); err != nil {
			return err
		}
		if opt.counted {
			if err := client.Counted(resp); err != nil {
				return err
			}
			continue
		}
		over = over || resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT
	}
	return exitIf(over, exitOverLimit)
}

func (opt *askOptions) asker(ctx context.Context, domain string) (asker, func(), error) {
	if len(opt.rules) == 0 && opt.backend != "memory://" {
		return nil, nil, inputError{errors.New("--backend is of rules that are evaluated here: give --rules, too")}
	}
	if len(opt.rules) > 0 {
		s, closer, err := localService(ctx, domain, opt.rules, opt.backend)
		return func(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
			return transport.Answer(ctx, s, req)
		}, closer, err
	}
	conn, err := opt.Dial()
	if err != nil {
		return nil, nil, inputError{err}
	}
	client := rls.NewRateLimitServiceClient(conn)
	answer := func(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		ctx = metadata.AppendToOutgoingContext(ctx, ratelimit.MetadataAsk, "1")
		resp, err := client.ShouldRateLimit(ctx, req)
		if err != nil {
			return nil, opt.Explain(err)
		}
		return resp, nil
	}
	return answer, func() { _ = conn.Close() }, nil
}

// localService decides by rules in files and a store.
func localService(ctx context.Context, domain string, paths []string, backend string) (*ratelimit.Service, func(),
	error) {
	set, _, err := files.Load(paths, rulefile.Options{})
	if err != nil {
		return nil, nil, wrongInput(err)
	}
	if known := set.Domains(); !slices.Contains(known, domain) {
		return nil, nil, notFoundError{fmt.Errorf("%q: %s", domain, set.WhyNoMatch(domain, nil))}
	}
	st, err := stack.New(ctx, backend, stack.Options{Existing: true})
	if err != nil {
		return nil, nil, fmt.Errorf("--backend: %w", err)
	}
	s, err := ratelimit.New(ratelimit.Config{
		Backend: st.Backend, Caps: st.Caps, Local: st.Local, Registry: st.Registry,
		Now: st.Now, Encoder: messages.Encoder{}, Log: slog.New(slog.DiscardHandler),
	}, set)
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	return s, func() { _ = st.Close() }, nil
}
