package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// policyDatabase are the settings that say where the database of policies is.
var policyDatabase = []string{"policies", "policies-username", "policies-password"}

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show and change policies, which take the place of limits of rules",
		Long: `Show and change the policies in the database that --policies or HEADGATE_POLICIES
names. A change is in force in every service when the command returns.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policySetCommand(), policyGetCommand(), policyListCommand(), policyDeleteCommand(), policyImportCommand(), policyExportCommand(), policyHistoryCommand())
	return cmd
}

// policyStoreCommand makes a command that works on the database of policies.
func policyStoreCommand(cmd *cobra.Command, count cobra.PositionalArgs, run func(ctx context.Context, e *policies.Editor, args []string) error) *cobra.Command {
	var given []string
	settingsCommand(cmd, policyDatabase, func(ctx context.Context, conf *config.Config, log *slog.Logger) error {
		if conf.Policies.URL == "" {
			return errors.New("no database of policies: set --policies, HEADGATE_POLICIES, or policies: in the --config file")
		}
		store, err := server.OpenPolicies(&conf.Policies, true, log)
		if err != nil {
			return err
		}
		defer store.Close()
		return run(ctx, policies.NewEditor(store, nil), given)
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		given = args
		return count(cmd, args)
	}
	return cmd
}

// shellUser is who changes policies from the shell.
func shellUser() string {
	name := "shell:" + cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"), fmt.Sprint(os.Getuid()))
	return strings.ToValidUTF8(name[:min(len(name), policies.MaxChangedBy)], "")
}

func policySetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set KEY",
		Short: "Make or change a policy",
		Long: `Make or change a policy. Without --algorithm it is a token bucket if it has --refill,
and else a sliding window.`,
		Example: `  headgate policy set user:alice --capacity 2 --window 1m
  headgate policy set user:bob --capacity 250 --refill 100`,
	}
	capacity := cmd.Flags().Int64("capacity", -1, "units per window, or the burst of a token bucket")
	cmd.Flags().Lookup("capacity").DefValue = "0" // there is none, and help must not name it
	window := cmd.Flags().String("window", "", "`duration` of the window, such as 1m")
	refill := cmd.Flags().String("refill", "", "units per `second` that a token bucket gets back, such as 10 or 0.5")
	algorithm := cmd.Flags().String("algorithm", "", "fixed_window, sliding_log, sliding_window or token_bucket")
	dryRun := cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
	return policyStoreCommand(cmd, exactlyOne, func(ctx context.Context, e *policies.Editor, args []string) error {
		if !cmd.Flags().Changed("capacity") {
			return errors.New("--capacity is missing: the units per window, or the burst of a token bucket")
		}
		figures, err := policyFigures(*algorithm, *capacity, *window, *refill)
		if err != nil {
			return err
		}
		key, err := policies.Normalize(args[0])
		if err != nil {
			return err
		}
		return applyEdits(ctx, cmd, e, []policies.Edit{{Key: key, Figures: figures}}, *dryRun)
	})
}

// policyFigures are those of the flags of `policy set`.
func policyFigures(algorithm string, capacity int64, window, refill string) (f policies.Figures, err error) {
	if capacity < 0 {
		return f, errors.New("--capacity: want 0 or more")
	}
	f.Capacity, f.Algorithm = capacity, limit.SlidingWindow
	if refill != "" {
		f.Algorithm = limit.TokenBucket
		if f.Refill, err = policies.ParseAmount(refill); err != nil {
			return f, fmt.Errorf("--refill: %w", err)
		}
	}
	if window != "" {
		d, err := time.ParseDuration(window)
		if err != nil {
			return f, fmt.Errorf("--window: %w", err)
		}
		f.Window = policies.Amount(d.Microseconds())
	}
	if algorithm != "" {
		known := false
		if f.Algorithm, known = limit.ParseAlgorithm(algorithm); !known {
			return f, fmt.Errorf("--algorithm: %q is unknown; it must be fixed_window, sliding_log, sliding_window or token_bucket", algorithm)
		}
	}
	if refill != "" && f.Algorithm != limit.TokenBucket {
		return f, fmt.Errorf("--refill: only token_bucket has one, not %v", f.Algorithm)
	}
	switch {
	case f.Algorithm == limit.TokenBucket && refill == "":
		return f, errors.New("--refill is missing: the units per second that a token bucket gets back")
	case f.Algorithm != limit.TokenBucket && window == "":
		return f, errors.New("--window is missing: how long the window is, such as 1m; a token bucket has --refill instead")
	}
	_, err = f.Limit()
	return f, err
}

// applyEdits does edits and prints what has changed.
func applyEdits(ctx context.Context, cmd *cobra.Command, e *policies.Editor, edits []policies.Edit, dryRun bool) error {
	outcomes, err := e.Apply(ctx, edits, shellUser(), dryRun)
	if err != nil {
		return err
	}
	made, changed, removed := 0, 0, 0
	out := cmd.OutOrStdout()
	for _, o := range outcomes {
		switch {
		case !o.Changed():
		case o.Before == nil:
			made++
			fmt.Fprintln(out, "+", policyLine(o.After))
		case o.After == nil:
			removed++
			fmt.Fprintln(out, "-", policyLine(o.Before))
		default:
			changed++
			fmt.Fprintln(out, "-", policyLine(o.Before))
			fmt.Fprintln(out, "+", policyLine(o.After))
		}
	}
	verb := map[bool]string{false: "", true: "would be "}[dryRun]
	fmt.Fprintf(out, "%d %smade, %d %schanged, %d %sremoved\n", made, verb, changed, verb, removed, verb)
	return nil
}

// policyLine is a policy for people.
func policyLine(p *policies.Policy) string {
	return fmt.Sprintf("%s %s version=%d by=%s", p.Key, figuresText(&p.Figures), p.Version, oneWord(p.ChangedBy))
}

func figuresText(f *policies.Figures) string {
	text := fmt.Sprintf("%v capacity=%d", f.Algorithm, f.Capacity)
	if f.Refill > 0 {
		text += fmt.Sprintf(" refill=%v/s", f.Refill)
	}
	if f.Window > 0 {
		text += fmt.Sprintf(" window=%vs", f.Window)
	}
	return text
}

func policyGetCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "get KEY", Short: "Print a policy"}
	return policyStoreCommand(cmd, exactlyOne, func(ctx context.Context, e *policies.Editor, args []string) error {
		key, err := policies.Normalize(args[0])
		if err != nil {
			return err
		}
		p, ok, err := e.Store().Get(ctx, key)
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%s: %w", key, policies.ErrNotFound)
		}
		fmt.Fprintln(cmd.OutOrStdout(), policyLine(&p))
		return nil
	})
}

// policyPage is how many policies are read at once.
const policyPage = 1000

// eachPolicy reads all policies whose keys begin with a prefix, in the order of their keys.
func eachPolicy(ctx context.Context, store policies.Store, prefix string, each func(*policies.Policy) error) error {
	for after := ""; ; {
		page, err := store.List(ctx, after, prefix, policyPage)
		if err != nil {
			return err
		}
		for i := range page {
			if err := each(&page[i]); err != nil {
				return err
			}
			after = page[i].Key
		}
		if len(page) < policyPage {
			return nil
		}
	}
}

func policyListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Print all policies, one per line"}
	prefix := cmd.Flags().String("prefix", "", "print only policies whose keys begin with this `text`")
	return policyStoreCommand(cmd, noArgs, func(ctx context.Context, e *policies.Editor, _ []string) error {
		return eachPolicy(ctx, e.Store(), *prefix, func(p *policies.Policy) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), policyLine(p))
			return err
		})
	})
}

func policyDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "delete KEY", Short: "Remove a policy, so that the next one in the order holds"}
	dryRun := cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
	return policyStoreCommand(cmd, exactlyOne, func(ctx context.Context, e *policies.Editor, args []string) error {
		key, err := policies.Normalize(args[0])
		if err != nil {
			return err
		}
		return applyEdits(ctx, cmd, e, []policies.Edit{{Key: key, Remove: true, If: policies.IfPresent}}, *dryRun)
	})
}
