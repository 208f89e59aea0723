package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/ratelimit/httpapi"
)

// adminCommand makes a command that shows what the admin API of a running service says: as text by show, or as JSON.
// What show returns is how the command ends.
func adminCommand[T any](cmd *cobra.Command, ask func(*client.API, *cobra.Command) (T, error),
	show func(io.Writer, T) error) *cobra.Command {
	var api client.API
	format := defineFormat(cmd)
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := ask(&api, cmd)
		if err != nil {
			return err
		}
		return show(format.writer(cmd.OutOrStdout(), answer), answer)
	}
	defineAdminAPI(cmd, &api)
	return cmd
}

// queryOf returns the parameters of a query, without those that are empty.
func queryOf(parameters map[string]string) url.Values {
	query := url.Values{}
	for name, value := range parameters {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

func coverageCommand() *cobra.Command {
	return adminCommand(&cobra.Command{
		Use:   "coverage",
		Short: "Show which descriptors no rule matches",
		Long: `Show which shapes of descriptors (their keys, in order) a running process has seen, how many
of them a rule matched and how many none did, and why. What no rule matches is not limited.
Rules with reserve whose calls reserve nothing have a line, too.`,
	}, func(api *client.API, cmd *cobra.Command) (answer httpapi.CoverageAnswer, err error) {
		err = api.Get(cmd.Context(), "/admin/coverage", nil, &answer)
		return answer, err
	}, showCoverage)
}

func showCoverage(out io.Writer, c httpapi.CoverageAnswer) error {
	showUnknownDomains(out, c.UnknownDomains)
	for _, n := range c.ReserveNothing {
		fmt.Fprintf(out, "RESERVES NOTHING rule %s/%s, in %s: %s\n", oneWord(n.Domain), oneWord(n.Rule),
			spell.Count(int(n.Calls), "call"), harmless(n.Why))
	}
	if len(c.Shapes) > 0 {
		fmt.Fprintln(out, "each line is a shape: the keys of a descriptor's entries (KEY=VALUE pairs), in order")
	}
	const heads = "DOMAIN\tENTRIES\tMATCHED\tUNMATCHED\tLAST\tWHY"
	return inColumns(out, "nothing was asked about domains that rules have", heads, c.Shapes, func(w io.Writer,
		s *httpapi.ShapeAnswer) {
		entries := strings.Join(s.Entries, ",")
		if len(s.Entries) == 0 {
			entries = "(others)"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", oneWord(s.Domain), spell.Short(oneWord(entries)), s.Matched, s.Unmatched,
			instant(s.Last), harmless(s.Why))
	})
}

// showUnknownDomains prints domains that no rules have, in a line each: nothing of them is limited.
func showUnknownDomains(out io.Writer, list []httpapi.UnknownDomainAnswer) {
	for i := range list {
		fmt.Fprintln(out, "NO RULES "+unknownDomainLine(&list[i]))
	}
}

func unknownDomainLine(d *httpapi.UnknownDomainAnswer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "have the domain %q", harmless(d.Domain))
	if d.Similar != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", harmless(d.Similar))
	}
	fmt.Fprintf(&b, ": %s since %s not limited", spell.Count(int(d.Calls), "call"), instant(d.First))
	if d.Caller != "" {
		b.WriteString(", the last one from " + oneWord(d.Caller))
	}
	return b.String()
}

func reloadsCommand() *cobra.Command {
	return adminCommand(&cobra.Command{
		Use:   "reloads",
		Short: "Show what the last changes of rules and policies were",
		Long: `Show the last 20 changes of rules and policies in a running process, the newest first: the
limits that came (+), went (-) or have other figures.`,
	}, func(api *client.API, cmd *cobra.Command) ([]httpapi.ReloadAnswer, error) {
		var answer httpapi.ReloadsAnswer
		err := api.Get(cmd.Context(), "/admin/reloads", nil, &answer)
		return answer.Reloads, err
	}, showReloads)
}

func showReloads(out io.Writer, reloads []httpapi.ReloadAnswer) error {
	if len(reloads) == 0 {
		fmt.Fprintln(out, "nothing has changed since the start")
	}
	for _, r := range reloads {
		fmt.Fprintf(out, "%s %s\n", instant(r.At), r.Source)
		for _, change := range r.Changes {
			fmt.Fprintln(out, "  "+harmless(change))
		}
	}
	return nil
}
