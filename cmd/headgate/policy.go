//go:build !rlsonly

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

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
)

// policyDatabase are the settings that say where the database of policies is.
var policyDatabase = []string{"policies", "policies-username", "policies-password"}

func policyCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "policy",
		Short: "Show and change policies, which take the place of limits of rules",
		Long: `Show and change the policies in the database that --policies or HEADGATE_POLICIES
names; with --addr, or where no setting names a database, those of a running service by its
admin API, with the token in HEADGATE_ADMIN_TOKEN. A change is in force in every service when
the command returns. import needs the database.`,
	}, policySetCommand(), policyGetCommand(), policyListCommand(), policyDeleteCommand(), policyImportCommand(),
		policyExportCommand(), policyHistoryCommand())
}

// policyStoreCommand makes a command that works on the database of policies, or on those of a running service.
func policyStoreCommand(cmd *cobra.Command, count cobra.PositionalArgs,
	run func(ctx context.Context, e *table.Editor, args []string) error) *cobra.Command {
	var api client.API
	return eitherCommand(cmd, policyDatabase, &api, count, func(ctx context.Context, conf *config.Config,
		log *slog.Logger, args []string) error {
		if conf == nil {
			return run(ctx, table.NewEditor(remotePolicies{api: &api, warn: cmd.ErrOrStderr()}, nil), args)
		}
		store, err := server.OpenPolicies(&conf.Policies, server.Existing, log)
		if err != nil {
			return err
		}
		defer store.Close()
		return run(ctx, table.NewEditor(store, nil), args)
	})
}

// policyKeyCommand is policyStoreCommand for a command about the policy whose key is its argument, "" if it has none.
func policyKeyCommand(cmd *cobra.Command, count cobra.PositionalArgs,
	run func(ctx context.Context, e *table.Editor, key string) error) *cobra.Command {
	return policyStoreCommand(cmd, count, func(ctx context.Context, e *table.Editor, args []string) (err error) {
		key := ""
		if len(args) > 0 {
			if key, err = policies.Normalize(args[0]); err != nil {
				return inputError{err}
			}
		}
		return run(ctx, e, key)
	})
}

// shellUser is who changes policies from the shell.
func shellUser() string {
	name := "shell:" + cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"), fmt.Sprint(os.Getuid()))
	return strings.ToValidUTF8(name[:min(len(name), table.MaxChangedBy)], "")
}

func policySetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set KEY",
		Short: "Make or change a policy",
		Long: `Make or change a policy, in the words of rules. Without --algorithm it is a token
bucket if it has --rate, and else a sliding window.`,
		Example: `  headgate policy set user:alice --limit 2 --window 1m
  headgate policy set user:bob --rate 100/s --burst 250`,
	}
	var g table.Given
	cmd.Flags().StringVar(&g.Algorithm, "algorithm", "", "fixed_window, sliding_log, sliding_window or token_bucket")
	complete(cmd, "algorithm", limit.FixedWindow.String(), limit.SlidingLog.String(), limit.SlidingWindow.String(),
		limit.TokenBucket.String())
	cmd.Flags().StringVar(&g.Limit, "limit", "", "`units` per window; 0 refuses everything")
	cmd.Flags().StringVar(&g.Window, "window", "", "`duration` of the window, such as 1m")
	cmd.Flags().StringVar(&g.Rate, "rate", "", "`units/time` that a token bucket gets back, such as 100/s")
	cmd.Flags().StringVar(&g.Burst, "burst", "", "`units` that a token bucket holds; without it the number of the rate")
	cmd.Flags().StringVar(&g.Capacity, "capacity", "", "the older --limit and --burst")
	cmd.Flags().StringVar(&g.RefillRate, "refill", "", "the older --rate: units per second")
	for _, older := range []string{"capacity", "refill"} {
		cmd.Flags().Lookup(older).Hidden = true
	}
	dryRun := cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
	format := defineFormat(cmd)
	return policyKeyCommand(cmd, exactlyOne, func(ctx context.Context, e *table.Editor, key string) error {
		figures, err := policyFigures(g)
		if err != nil {
			return inputError{err}
		}
		return applyEdits(ctx, cmd, format, e, []table.Edit{{Key: key, Figures: figures}}, *dryRun)
	})
}

// policyFigures are those of the flags of `policy set`.
func policyFigures(g table.Given) (policies.Figures, error) {
	older := g.Capacity != "" || g.RefillRate != ""
	switch {
	case g.Algorithm != "":
	case g.Rate != "" || g.RefillRate != "":
		g.Algorithm = limit.TokenBucket.String()
	default:
		g.Algorithm = limit.SlidingWindow.String()
	}
	if older {
		if err := olderFlags(&g); err != nil {
			return policies.Figures{}, err
		}
	}
	f, err := g.Figures()
	if word, ok := errors.AsType[*policies.WordError](err); ok {
		name := cmp.Or(map[string]string{"type": "algorithm", "refillRate": "refill", "windowSeconds": "window"}[word.Word],
			word.Word)
		return f, fmt.Errorf("--%s %s", name, word.Problem)
	}
	return f, err
}

// olderFlags makes of --capacity and --refill, with --algorithm and --window beside them, the older
// words.
func olderFlags(g *table.Given) error {
	if g.Limit != "" || g.Rate != "" || g.Burst != "" {
		return errors.New("--capacity and --refill are older words for --limit, --rate and --burst: use only one set of them")
	}
	a, known := limit.ParseAlgorithm(g.Algorithm)
	if !known {
		return nil // which Figures reports
	}
	if g.RefillRate != "" && !a.Is(limit.Refilled) {
		return fmt.Errorf("--refill: only token_bucket has one, not %v", a)
	}
	if g.Window != "" {
		d, err := units.ParseDuration(g.Window)
		if err != nil {
			return fmt.Errorf("--window %q: %w", g.Window, err)
		}
		g.WindowSeconds = policies.Amount(d.Microseconds()).String()
	}
	g.Type, g.Algorithm, g.Window = policies.TypeOf(a), "", ""
	return nil
}

// A policyChange is the change of one policy, in JSON. Before is null if the policy is new, After if it was removed.
type policyChange struct {
	Key    string     `json:"key"`
	Change string     `json:"change"` // made, changed or removed
	Before *policyRow `json:"before"`
	After  *policyRow `json:"after"`
}

// applyEdits does edits and prints what has changed.
func applyEdits(ctx context.Context, cmd *cobra.Command, format *format, e *table.Editor, edits []table.Edit,
	dryRun bool) error {
	outcomes, err := e.Apply(ctx, edits, shellUser(), dryRun)
	if err != nil {
		return err
	}
	w := format.list(cmd.OutOrStdout())
	counts := map[string]int{}
	for _, o := range outcomes {
		if !o.Changed() {
			continue
		}
		c := policyChange{Change: "changed", Before: rowOf(o.Before), After: rowOf(o.After)}
		if o.Before == nil {
			c.Change = "made"
		} else {
			c.Key = o.Before.Key
			fmt.Fprintln(w.text, "-", policyLine(o.Before))
		}
		if o.After == nil {
			c.Change = "removed"
		} else {
			c.Key = o.After.Key
			fmt.Fprintln(w.text, "+", policyLine(o.After))
		}
		counts[c.Change]++
		if err := w.write(&c); err != nil {
			return err
		}
	}
	verb := map[bool]string{false: "", true: "would be "}[dryRun]
	fmt.Fprintf(w.text, "%d %smade, %d %schanged, %d %sremoved\n", counts["made"], verb, counts["changed"], verb,
		counts["removed"], verb)
	return w.end()
}

// policyLine is a policy for people.
func policyLine(p *table.Policy) string {
	return fmt.Sprintf("%s %s version=%d by=%s", p.Key, p.Text(), p.Version, oneWord(p.ChangedBy))
}

func policyGetCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "get KEY", Short: "Print a policy"}
	format := defineFormat(cmd)
	return policyKeyCommand(cmd, exactlyOne, func(ctx context.Context, e *table.Editor, key string) error {
		p, ok, err := e.Store().Get(ctx, key)
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%s: %w", key, table.ErrNotFound)
		}
		fmt.Fprintln(format.writer(cmd.OutOrStdout(), rowOf(&p)), policyLine(&p))
		return nil
	})
}

// policyPage is how many policies are read at once.
const policyPage = 1000

// eachOf calls each for the elements of all pages, at most most of them unless it is 0. page returns at most n elements
// that follow last, the last element of the page before; it is zero for the first page.
func eachOf[T any](most int, page func(last *T, n int) ([]T, error), each func(*T) error) error {
	last := new(T)
	for done := 0; ; {
		n := policyPage
		if most > 0 {
			n = min(n, most-done)
		}
		list, err := page(last, n)
		if err != nil {
			return err
		}
		for i := range list {
			last = &list[i]
			if err := each(last); err != nil {
				return err
			}
		}
		if done += len(list); len(list) < n || done == most {
			return nil
		}
	}
}

// eachPolicy reads all policies whose keys begin with a prefix, in the order of their keys.
func eachPolicy(ctx context.Context, store table.Store, prefix string, each func(*table.Policy) error) error {
	return eachOf(0, func(last *table.Policy, n int) ([]table.Policy, error) {
		return store.List(ctx, last.Key, prefix, n)
	}, each)
}

func policyListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Print all policies, one per line"}
	prefix := cmd.Flags().String("prefix", "", "print only policies whose keys begin with this `text`")
	format := defineFormat(cmd)
	return policyStoreCommand(cmd, noArgs, func(ctx context.Context, e *table.Editor, _ []string) error {
		w := format.list(cmd.OutOrStdout())
		err := eachPolicy(ctx, e.Store(), *prefix, func(p *table.Policy) error {
			_, err := fmt.Fprintln(w.text, policyLine(p))
			return errors.Join(err, w.write(rowOf(p)))
		})
		if err != nil {
			return err
		}
		return w.end()
	})
}

func policyDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "delete KEY", Short: "Remove a policy, so that the next one in the order holds"}
	dryRun := cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
	format := defineFormat(cmd)
	return policyKeyCommand(cmd, exactlyOne, func(ctx context.Context, e *table.Editor, key string) error {
		return applyEdits(ctx, cmd, format, e, []table.Edit{{Key: key, Remove: true, If: table.IfPresent}}, *dryRun)
	})
}

func policyHistoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history [KEY]",
		Short: "Print who changed a policy, or any, when, from what to what",
		Long: `Print the changes of a policy, or of all, the newest first: the number of the change,
when it was made, the key, who made it, and the policy before and after it. A policy that
was removed has its history, too.`,
		Example: `  headgate policy history user:alice
  headgate policy history --limit 0 --format json >history.json`,
	}
	limit := cmd.Flags().Int("limit", 20, "print at most so many changes; 0: all that are kept")
	format := defineFormat(cmd)
	return policyKeyCommand(cmd, atMostOne, func(ctx context.Context, e *table.Editor, key string) error {
		if *limit < 0 {
			return inputError{errors.New("--limit: want 0 or more")}
		}
		w := format.list(cmd.OutOrStdout())
		page := func(last *table.Entry, n int) ([]table.Entry, error) {
			return e.Store().History(ctx, key, last.Number, n)
		}
		err := eachOf(*limit, page, func(e *table.Entry) error {
			_, err := fmt.Fprintf(w.text, "%d %s %s by=%s: %s -> %s\n", e.Number, e.At.UTC().Format(time.RFC3339), e.Key,
				oneWord(e.By), revisionText(e.Before), revisionText(e.After))
			return errors.Join(err, w.write(e))
		})
		if err != nil {
			return err
		}
		return w.end()
	})
}

func revisionText(r *table.Revision) string {
	if r == nil {
		return "none"
	}
	return r.Text() + fmt.Sprintf(" version=%d", r.Version)
}
