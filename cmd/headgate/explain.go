package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/ratelimit/httpapi"
)

type explainOptions struct {
	key, requestID, backend string
	rules                   []string
}

func explainCommand() *cobra.Command {
	var api client.API
	var opt explainOptions
	cmd := &cobra.Command{
		Use:   "explain DOMAIN KEY=VALUE… | KEY",
		Short: "Say why a request is refused, or would be",
		Long: `Say what would become of a request with one descriptor, whose entries are the arguments,
in order, or with the KEY that headgate top prints: which rule matches, and which nearly do;
which policy holds; what each limit has counted; and who was refused lately. It charges
nothing. --rules asks rules in files instead of a running service.

The exit code is 0 if the request would pass now, 3 if it would be refused or no rules have
the domain, and 2 if that is not known.`,
		Example: `  headgate explain shop tenant=noisy path=/pay
  headgate explain 'shop|tenant=noisy|path=/pay'
  headgate explain --request-id 8f3b2c
  headgate explain shop tenant=noisy --rules rules/`,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&opt.key, "key", "", "`key` as headgate top prints it, or hashed as logs have it")
	f.StringVar(&opt.requestID, "request-id", "", "`x-request-id` of a request that was refused")
	f.StringArrayVar(&opt.rules, "rules", nil, "explain by the rules in this `file or directory`, without a service")
	f.StringVar(&opt.backend, "backend", "memory://", "`URL` of the store that keeps the counters of --rules")
	completeBackend(cmd)
	format := defineFormat(cmd)
	defineAdminAPI(cmd, &api)
	for _, other := range []string{"key", "request-id", "addr"} {
		cmd.MarkFlagsMutuallyExclusive("rules", other)
	}
	cmd.MarkFlagsMutuallyExclusive("key", "request-id")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		asked := opt.key != "" || opt.requestID != ""
		switch {
		case !asked && len(opt.rules) == 0 && len(args) == 1 && strings.Contains(args[0], "|"):
			opt.key = args[0] // as headgate top prints it
			return nil
		case !asked:
			return atLeast(2)(cmd, args)
		case len(args) > 0:
			return fmt.Errorf("%q: with --key or --request-id, headgate explain takes no DOMAIN and no KEY=VALUE", args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e, err := opt.explain(cmd.Context(), &api, args)
		if err != nil {
			return err
		}
		showExplanation(format.writer(cmd.OutOrStdout(), e), e)
		if e.UnknownDomain != nil {
			return exitCode(exitNo)
		}
		if e.Passes == nil {
			return exitCode(exitError)
		}
		return exitIf(!*e.Passes, exitNo)
	}
	return cmd
}

func (opt *explainOptions) explain(ctx context.Context, api *client.API, args []string) (*httpapi.Explained, error) {
	if len(opt.rules) > 0 {
		return opt.offline(ctx, args[0], strings.Join(args[1:], ","))
	}
	by := map[string]string{"key": opt.key, "request_id": opt.requestID}
	if len(args) > 1 {
		by["domain"], by["descriptor"] = args[0], strings.Join(args[1:], ",")
	}
	e := new(httpapi.Explained)
	return e, api.Get(ctx, "/admin/explain", queryOf(by), e)
}

// offline explains by rules in files.
func (opt *explainOptions) offline(ctx context.Context, domain, descriptor string) (*httpapi.Explained, error) {
	entries, err := httpapi.Entries(descriptor)
	if err != nil {
		return nil, inputError{err}
	}
	s, closer, err := localService(ctx, domain, opt.rules, opt.backend)
	if err != nil {
		return nil, err
	}
	defer closer()
	e, x, err := httpapi.Explain(ctx, s, domain, entries)
	if err != nil {
		return nil, err
	}
	if x.Err != nil {
		return nil, fmt.Errorf("--backend: %w", x.Err)
	}
	return e, nil
}

func showExplanation(out io.Writer, e *httpapi.Explained) {
	fmt.Fprintln(out, e.Key)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	switch {
	case e.Rule != "":
		line("rule", "%s%s", oneWord(e.Rule), inBrackets(e.Place))
	default:
		line("rule", "none: %s", harmless(e.Why))
	}
	if u := e.UnknownDomain; u != nil && u.Calls > 0 {
		line("domain", "no rules %s", unknownDomainLine(u))
	}
	for _, r := range e.Nearly {
		line("nearly", "%s%s", oneWord(r.Rule), inBrackets(r.Place))
	}
	if len(e.Nearly) > 0 {
		line("", "(nearly: one entry, a KEY=VALUE pair, differs, is missing or is too many)")
	}
	if p := e.Policy; p != nil && p.InForce != "" {
		line("policy", "%s holds in the place of the rule's limit", oneWord(p.InForce))
	} else if p != nil {
		line("policy", "none; looked for: %s", harmless(strings.Join(p.LookedUp, ", ")))
	}
	if len(e.Limits) > 0 {
		showLimits(out, e.Limits)
	}
	switch {
	case e.Passes == nil:
		line("answer", "not known; while the store fails, the rule says: %s", e.OnStoreError)
	case *e.Passes:
		line("answer", "passes")
	default:
		line("answer", "refused")
	}
	for _, r := range e.Refusals {
		retry, request := "never", ""
		if r.RetryAfterMS != nil {
			retry = "after " + shortTime(*r.RetryAfterMS)
		}
		if r.RequestID != "" {
			request = ", request " + oneWord(r.RequestID)
		}
		line("refused", "%s by %s, cause %s, retry %s%s", instant(r.At), oneWord(r.Rule), r.Cause,
			retry, request)
	}
	showSeen(out, e.Replicas, e.Note, e.Problem)
}

func showLimits(out io.Writer, limits []httpapi.LimitState) {
	const heads = "LIMIT\tFIGURES\tUSED\tLEFT\tREFUSED/5m\tRETRY"
	_ = inColumns(out, "", heads, limits, func(w io.Writer, l *httpapi.LimitState) {
		shadow := ""
		if l.Shadow {
			shadow = " (shadow)"
		}
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%d\t%s\n", oneWord(l.Rule), shadow, l.Limit, number(l.Used), number(l.Left),
			l.Refused, retryText(&l.State))
	})
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + harmless(text) + ")"
}
