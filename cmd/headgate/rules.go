package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/ratelimit/httpapi"
)

func rulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Show the limits in force",
		Long: `Show the limits in force in a running service, one per line: the limit, the key of policies
that take its place, how many requests it refused in the last five minutes, how full its
fullest key was, and where it is. --rules shows those of files instead.`,
	}
	domain := cmd.Flags().String("domain", "", "only the rules of this `domain`")
	paths := cmd.Flags().StringArray("rules", nil, "show the rules in this `file or directory`, without a service")
	adminCommand(cmd, func(api *client.API, cmd *cobra.Command) ([]httpapi.RuleRow, error) {
		if len(*paths) > 0 {
			return rulesOfFiles(*paths, *domain)
		}
		return rulesInForce(cmd.Context(), api, *domain)
	}, showRules)
	cmd.MarkFlagsMutuallyExclusive("rules", "addr")
	return cmd
}

// rulesInForce returns all limits of a service, of a domain unless it is empty.
func rulesInForce(ctx context.Context, api *client.API, domain string) (all []httpapi.RuleRow, err error) {
	query := queryOf(map[string]string{"limit": "1000", "domain": domain})
	for {
		var page httpapi.RulesAnswer
		if err := api.Get(ctx, "/admin/rules", query, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Rules...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// rulesOfFiles returns the limits of rules in files.
func rulesOfFiles(paths []string, domain string) ([]httpapi.RuleRow, error) {
	set, _, err := files.Load(paths, rulefile.Options{})
	if err != nil {
		return nil, wrongInput(err)
	}
	other := func(r httpapi.RuleRow) bool { return domain != "" && r.Domain != domain }
	return slices.DeleteFunc(httpapi.RuleRows(set), other), nil
}

func showRules(out io.Writer, rules []httpapi.RuleRow) error {
	const heads = "RULE\tLIMIT\tPOLICY\tREFUSED/5m\tFULLEST\tPLACE"
	return inColumns(out, "there are no rules: nothing is limited", heads, rules, func(w io.Writer, r *httpapi.RuleRow) {
		limit, fullest := r.Limit, "-"
		if r.Shadow {
			limit += " (shadow)"
		}
		if r.UsedPercent > 0 {
			fullest = fmt.Sprintf("%.1f%%", r.UsedPercent)
		}
		policy := "-"
		if r.Policy != "" {
			policy = oneWord(r.Policy)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", oneWord(r.Rule), limit, policy, r.Refused, fullest,
			harmless(r.Place))
	})
}

func statusCommand() *cobra.Command {
	return adminCommand(&cobra.Command{
		Use:   "status",
		Short: "Show how a running service is, in one screen",
		Long: `Show whether a running service is ready, how its parts are, and what it answered in the
last minute. The exit code is 0 if it is ready, and 3 if it is not.`,
	}, func(api *client.API, cmd *cobra.Command) (s httpapi.StatusAnswer, err error) {
		err = api.Get(cmd.Context(), "/admin/status", nil, &s)
		return s, err
	}, showStatus)
}

// mostCalls is the percentage of calls from which on most calls do something.
const mostCalls = 50

func showStatus(out io.Writer, s httpapi.StatusAnswer) error {
	state := strings.ToLower(strings.ReplaceAll(s.Status, "_", " "))
	if s.Traffic.UnmatchedPercent > mostCalls {
		state += fmt.Sprintf(", but %.1f%% of calls meet no rule and are not limited", s.Traffic.UnmatchedPercent)
	}
	fmt.Fprintf(out, "%s, headgate %s\n", state, s.Version)
	showUnknownDomains(out, s.UnknownDomains)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, p := range s.Parts {
		state, detail := "ok", p.Detail
		if p.Problem != "" {
			state, detail = "FAILING", p.Problem
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, state, harmless(detail))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	t := &s.Traffic
	fmt.Fprintf(out, "%.1f answers/s, %.1f%% refused, %.1f%% by failure policy, last call %s\n", t.AnswersPerSecond,
		t.RefusedPercent, t.ByPolicyPercent, ago(t.LastCall))
	if n := t.UnmatchedShapes; n > 0 {
		fmt.Fprintf(out, "%s of descriptors that no rule matched: headgate coverage\n", spell.Count(n, "shape"))
	}
	return exitIf(s.Status != "READY", exitNo)
}

func ago(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return max(time.Since(*at), 0).Round(time.Second).String() + " ago"
}
