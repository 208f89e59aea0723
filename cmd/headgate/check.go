package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

func checkCommand() *cobra.Command {
	var format, backend string
	var merge bool
	cmd := &cobra.Command{
		Use:   "check PATH…",
		Short: "Check rules before they go live",
		Long: `Check rules in files and directories, and that the backend can keep them.

Every problem is printed as file:line:col: message. The exit code is 1 if one
of them is an error; warnings alone leave it 0.`,
		Example: `  headgate check rules/
  headgate check rules/shop.yaml --backend redis://localhost:6379 --format json`,
		Args: atLeast(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "text" && format != "json" {
				return fmt.Errorf("--format %q is neither text nor json", format)
			}
			return check(cmd.OutOrStdout(), args, backend, merge, format)
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "text or json")
	cmd.Flags().StringVar(&backend, "backend", "memory://", "`URL` of the backend that is to keep the rules; nothing connects to it")
	cmd.Flags().BoolVar(&merge, "merge-domains", false, "let several files hold rules of one domain")
	return cmd
}

func check(out io.Writer, paths []string, backend string, merge bool, format string) error {
	sources, err := descriptors.ReadPaths(paths)
	if err != nil {
		return err
	}
	set, problems := descriptors.Load(sources, descriptors.Options{MergeDomains: merge})
	if set != nil {
		caps, err := backendCaps(backend)
		if err != nil {
			return fmt.Errorf("--backend: %w", err)
		}
		problems = append(problems, ratelimit.CapProblems(set, &caps)...)
	}
	if err := printProblems(out, problems, set, format); err != nil {
		return err
	}
	if set == nil || hasError(problems) {
		return exitCode(exitProblems)
	}
	if format == "text" {
		return set.DescribeShares(out)
	}
	return nil
}

func hasError(problems []descriptors.Problem) bool {
	for _, p := range problems {
		if !p.Warning {
			return true
		}
	}
	return false
}

func printProblems(out io.Writer, problems []descriptors.Problem, set *descriptors.Set, format string) error {
	if format == "json" {
		if problems == nil {
			problems = []descriptors.Problem{}
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(problems)
	}
	for _, p := range problems {
		fmt.Fprintln(out, p.String())
	}
	if set != nil && !hasError(problems) {
		fmt.Fprintf(out, "ok: %s in %s\n", count(len(set.Rules()), "rule"), count(len(set.Domains()), "domain"))
	}
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// loadRules loads rules from paths; its error has every problem.
func loadRules(paths []string, merge bool) (*descriptors.Set, error) {
	sources, err := descriptors.ReadPaths(paths)
	if err != nil {
		return nil, err
	}
	set, problems := descriptors.Load(sources, descriptors.Options{MergeDomains: merge})
	if set == nil {
		return nil, problemsError(problems)
	}
	return set, nil
}

func problemsError(problems []descriptors.Problem) error {
	lines := []string{"the rules cannot be used:"}
	for _, p := range problems {
		lines = append(lines, "  "+p.String())
	}
	return errors.New(strings.Join(lines, "\n"))
}
