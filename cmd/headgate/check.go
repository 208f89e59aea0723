package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/reference"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/server"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/ratelimit"
)

func checkCommand() *cobra.Command {
	var format *format
	var backend string
	var merge, reference, strict bool
	cmd := &cobra.Command{
		Use:   "check PATH…",
		Short: "Check rules before they go live",
		Long: `Check rule files and directories, and whether the backend supports the rules.

Every problem is printed as file:line:col: message. The exit code is 1 if any
of them is an error, and 0 otherwise: warnings count only with --strict.

With --reference the rules are those of envoyproxy/ratelimit. What that service
decides differently is printed, too. Then the exit code is 3, unless it is 1.`,
		Example: `  headgate check rules/
  headgate check --reference /data/ratelimit/config
  headgate check rules/shop.yaml --backend redis://localhost:6379 --format json`,
		Args: atLeast(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return check(cmd.OutOrStdout(), args, backend, rulefile.Options{MergeDomains: merge}, reference, strict,
				format)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 if there are warnings")
	format = defineFormat(cmd)
	cmd.Flags().StringVar(&backend, "backend", "memory://",
		"`URL` of the backend that the rules are for; check does not connect to it")
	completeBackend(cmd)
	cmd.Flags().BoolVar(&reference, "reference", false,
		"print what envoyproxy/ratelimit decides differently; files of every name are read")
	cmd.Flags().BoolVar(&merge, "merge-domains", false, "allow several files for one domain")
	return cmd
}

func check(out io.Writer, paths []string, backend string, opt rulefile.Options, asReference, strict bool,
	format *format) error {
	caps, err := stack.Caps(backend)
	if err != nil {
		return inputError{fmt.Errorf("--backend: %w", err)}
	}
	unfit := func(set *descriptors.Set) []descriptors.Problem { return ratelimit.CapProblems(set, &caps) }
	var set *descriptors.Set
	var problems, differences []descriptors.Problem
	if asReference {
		set, problems, differences, err = reference.Check(paths, opt, unfit)
	} else {
		set, problems, err = files.Check(paths, opt, unfit)
	}
	if err != nil {
		return err
	}
	wrong := func(p descriptors.Problem) bool { return !p.Warning || strict }
	good := set != nil && !slices.ContainsFunc(problems, wrong)
	all := append(append([]descriptors.Problem{}, problems...), differences...) // an array in JSON, also an empty one
	out = format.writer(out, all)
	for _, p := range all {
		fmt.Fprintln(out, p.String())
	}
	if !good {
		return exitCode(exitProblems)
	}
	fmt.Fprintf(out, "ok: %s in %s\n", spell.Count(len(set.Rules()), "rule"), spell.Count(len(set.Domains()), "domain"))
	if len(differences) > 0 {
		return exitCode(exitNo)
	}
	if note := server.FailureNote(set, &caps); note != "" {
		fmt.Fprintln(out, note)
	}
	return set.Describe(out)
}
