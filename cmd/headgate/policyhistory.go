//go:build !rlsonly

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/policies/table"
)

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
	return policyStoreCommand(cmd, atMostOne, func(ctx context.Context, e *table.Editor, args []string) error {
		if *limit < 0 {
			return inputError{errors.New("--limit: want 0 or more")}
		}
		key, err := policyKey(args)
		if err != nil {
			return err
		}
		w := format.list(cmd.OutOrStdout())
		err = eachEntry(ctx, e.Store(), key, *limit, func(e *table.Entry) error {
			return errors.Join(writeEntry(w.text, e), w.write(e))
		})
		if err != nil {
			return err
		}
		return w.end()
	})
}

// eachEntry reads the history of a key, or of all, page by page; most bounds it unless it is 0.
func eachEntry(ctx context.Context, store table.Store, key string, most int,
	each func(*table.Entry) error) error {
	before := int64(0)
	for done := 0; ; {
		n := policyPage
		if most > 0 {
			n = min(n, most-done)
		}
		page, err := store.History(ctx, key, before, n)
		if err != nil {
			return err
		}
		for i := range page {
			if err := each(&page[i]); err != nil {
				return err
			}
			before = page[i].Number
		}
		if done += len(page); len(page) < n || done == most {
			return nil
		}
	}
}

// writeEntry writes an entry as a line for people.
func writeEntry(out io.Writer, e *table.Entry) error {
	_, err := fmt.Fprintf(out, "%d %s %s by=%s: %s -> %s\n", e.Number, e.At.UTC().Format(time.RFC3339), e.Key,
		oneWord(e.By),
		revisionText(e.Before), revisionText(e.After))
	return err
}

func revisionText(r *table.Revision) string {
	if r == nil {
		return "none"
	}
	return r.Text() + fmt.Sprintf(" version=%d", r.Version)
}
