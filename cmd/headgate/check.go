package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/reference"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/server"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A checkup says how rules are checked.
type checkup struct {
	backend, envoy           string
	merge, reference, strict bool
	probe                    bool
	command                  *enum // that runs with the rules
	format                   *format
}

func checkCommand() *cobra.Command {
	c := new(checkup)
	cmd := &cobra.Command{
		Use:   "check PATH…",
		Short: "Check rules before they go live",
		Long: `Check rule files and directories, and whether the backend supports the rules.

Every problem is printed as file:line:col: message. The exit code is 1 if any
of them is an error, and 0 otherwise: warnings count only with --strict.

With --reference the rules are those of envoyproxy/ratelimit. What that service
decides differently is printed, too. Then the exit code is 3, unless it is 1.
--for ratelimit leaves out what "headgate ratelimit" decides as that service.

With --envoy, entries that rules by method and path need and Envoy does not send
are errors.

With --probe, which needs no PATH, the backend is asked for each ability that it
needs, such as scripts and writes. The first one that is missing is an error. The
exit code is 2 if the backend does not answer.`,
		Example: `  headgate check rules/
  headgate check --reference --for ratelimit /data/ratelimit/config
  headgate check rules/shop.yaml --backend redis://localhost:6379 --format json
  headgate check rules/shop.yaml --envoy envoy.yaml
  headgate check --probe --backend redis://localhost:6379`,
		Args: func(cmd *cobra.Command, args []string) error {
			if c.probe {
				return nil
			}
			return atLeast(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("for") && !c.reference {
				return inputError{errors.New("--for needs --reference")}
			}
			abilities, err := c.abilities(cmd.Context())
			if err != nil {
				return err
			}
			return c.check(cmd.OutOrStdout(), args, abilities)
		},
	}
	cmd.Flags().BoolVar(&c.strict, "strict", false, "exit with 1 if there are warnings")
	c.format = defineFormat(cmd)
	cmd.Flags().StringVar(&c.backend, "backend", "memory://",
		"`URL` of the backend that the rules are for; check connects to it with --probe only")
	completeBackend(cmd)
	cmd.Flags().StringVar(&c.envoy, "envoy", "",
		"`file` with Envoy's configuration, or a part of it: say what it does not send")
	cmd.Flags().BoolVar(&c.reference, "reference", false,
		"print what envoyproxy/ratelimit decides differently; files of every name are read")
	c.command = defineEnum(cmd, "for", "the command that runs with the rules, with --reference", "serve", "ratelimit")
	cmd.Flags().BoolVar(&c.probe, "probe", false, "connect to the backend, and print what it is able to do")
	cmd.Flags().BoolVar(&c.merge, "merge-domains", false, "allow several files for one domain")
	return cmd
}

// A checked is what check prints as JSON.
type checked struct {
	Files    int                   `json:"files"`
	Domains  int                   `json:"domains"`
	Rules    int                   `json:"rules"`
	Problems []descriptors.Problem `json:"problems"`
	Backend  abilities             `json:"backend,omitempty"`
}

// read reads the rules, and finds what is wrong with them and what the reference decides differently.
func (c *checkup) read(sources []rulefile.Source, caps *backends.Caps) (set *descriptors.Set, problems,
	differences []descriptors.Problem, err error) {
	set, spec, problems := rulefile.LoadSpec(sources, rulefile.Options{MergeDomains: c.merge})
	if set == nil {
		return nil, problems, nil, nil
	}
	if c.reference {
		differences = reference.Check(sources, spec, c.command.value == "ratelimit")
	}
	problems = append(problems, ratelimit.CapProblems(set, caps)...)
	if c.envoy != "" {
		missing, err := notSent(set, c.envoy)
		if err != nil {
			return nil, nil, nil, err
		}
		problems = append(problems, missing...)
	}
	return set, problems, differences, nil
}

func (c *checkup) check(out io.Writer, paths []string, able abilities) error {
	caps, err := stack.Caps(c.backend)
	if err != nil {
		return inputError{fmt.Errorf("--backend: %w", err)}
	}
	if len(paths) == 0 {
		out = c.format.writer(out, checked{Problems: []descriptors.Problem{}, Backend: able})
		return able.print(out, c.strict)
	}
	sources, err := files.ReadPaths(paths, files.Names{All: c.reference})
	if err != nil {
		return err
	}
	set, problems, differences, err := c.read(sources, &caps)
	if err != nil {
		return err
	}
	wrong := func(p descriptors.Problem) bool { return !p.Warning || c.strict }
	good := set != nil && !slices.ContainsFunc(problems, wrong)
	all := append(append([]descriptors.Problem{}, problems...), differences...) // an array in JSON, also an empty one
	seen := checked{Files: len(sources), Problems: all, Backend: able}
	if set != nil {
		seen.Domains, seen.Rules = len(set.Domains()), len(set.Rules())
	}
	out = c.format.writer(out, seen)
	for _, p := range all {
		fmt.Fprintln(out, p.String())
	}
	unable := able.print(out, c.strict)
	if !good {
		return exitCode(exitProblems)
	}
	if unable != nil {
		return unable
	}
	fmt.Fprintf(out, "ok: %s in %s\n", spell.Count(len(set.Rules()), "rule"), spell.Count(len(set.Domains()), "domain"))
	if len(differences) > 0 {
		return exitCode(exitNo)
	}
	if note := server.FailureNote(set, &caps); note != "" {
		fmt.Fprintln(out, note)
	}
	describe(out, set)
	return nil
}
