package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/ratelimit/httpapi"
)

func topCommand() *cobra.Command {
	var api client.API
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show who is refused most, or nearest to a limit",
		Long: `Show the keys that are refused most, or with --near those nearest to their limits, of all
replicas that share a store. On a terminal the table is drawn again until you press Ctrl-C;
else it is printed once.`,
		Example: `  headgate top
  headgate top --near --window 15m
  headgate top --format json | jq '.keys[0]'`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.SortFlags = false
	by := defineEnum(cmd, "by", "what to order by: refusals, or the used part of the limit", "refused", "near")
	near := f.Bool("near", false, "short for --by near")
	window := f.Duration("window", 5*time.Minute, "how far to look back, whole minutes up to 15m")
	n := f.IntP("limit", "n", 20, "most keys to show, up to 50")
	every := f.Duration("every", 2*time.Second, "how often to draw on a terminal; 0: once")
	format := defineFormat(cmd)
	defineAdminAPI(cmd, &api)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *near {
			by.value = "near"
		}
		show := func(out io.Writer) error {
			query := url.Values{"by": {by.value}, "window": {units.Format(*window)}, "limit": {strconv.Itoa(*n)}}
			var top httpapi.TopAnswer
			if err := api.Get(cmd.Context(), "/admin/top", query, &top); err != nil {
				return err
			}
			return showTop(format.writer(out, top), &top)
		}
		out := cmd.OutOrStdout()
		if *every <= 0 || format.json() || !isTerminal(out) {
			return show(out)
		}
		return redraw(cmd.Context(), out, max(*every, 100*time.Millisecond), show)
	}
	return cmd
}

// redraw shows something again and again until ctx ends. A failure is shown in its place; one that trying again does
// not help ends it.
func redraw(ctx context.Context, out io.Writer, every time.Duration, show func(io.Writer) error) error {
	const home, clear = "\x1b[H", "\x1b[J"
	for {
		var page strings.Builder
		err := show(&page)
		var refusal *client.Refusal
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refusal) && refusal.Code < 500:
			return err
		case err != nil:
			fmt.Fprintln(&page, err)
		}
		fmt.Fprint(out, home, clear, page.String())
		if background.Sleep(ctx, every) != nil {
			return nil
		}
	}
}

func showTop(out io.Writer, t *httpapi.TopAnswer) error {
	window := units.Format(time.Duration(t.WindowMS) * time.Millisecond)
	none, last := "nobody was refused", "REFUSED/"
	if t.By == "near" {
		none, last = "nobody was near a limit", "HIGHEST/"
	}
	heads := "KEY\tRULE\tLIMIT\tUSED\tLEFT\t" + last + window + "\tRETRY"
	err := inColumns(out, none+" in the last "+window, heads, t.Keys, func(w io.Writer, k *httpapi.KeyAnswer) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Key, oneWord(k.Rule), k.Limit, number(k.Used), number(k.Left),
			topFigure(k), retryText(&k.State))
	})
	if err != nil {
		return err
	}
	showSeen(out, t.Replicas, t.Note, t.Problem)
	if !t.Exact {
		fmt.Fprintln(out, "there were more keys than could be counted: figures are the least that is sure")
	}
	return nil
}

// showSeen says whose figures an answer has, and what is not known.
func showSeen(out io.Writer, replicas []httpapi.Replica, note, problem string) {
	if len(replicas) > 1 {
		names := make([]string, len(replicas))
		for i, r := range replicas {
			names[i] = oneWord(cmp.Or(r.Name, r.ID))
		}
		fmt.Fprintf(out, "replicas: %s\n", strings.Join(names, ", "))
	}
	for _, text := range []string{note, problem} {
		if text != "" {
			fmt.Fprintln(out, harmless(text))
		}
	}
}

func number(n *int64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatInt(*n, 10)
}

// topFigure is by what keys are ordered.
func topFigure(k *httpapi.KeyAnswer) string {
	switch {
	case k.Refused == nil:
		return fmt.Sprintf("%.1f%%", k.UsedPercent)
	case k.AtMost != nil:
		return fmt.Sprintf("≥%d", *k.Refused)
	}
	return number(k.Refused)
}

// retryText is how long to wait until a limit has room.
func retryText(s *httpapi.State) string {
	switch {
	case s.Used == nil:
		return "?"
	case s.RetryAfterMS == nil:
		return "never"
	case *s.RetryAfterMS == 0:
		return "-"
	}
	return shortTime(*s.RetryAfterMS)
}

// shortTime is a number of milliseconds as people say it: to the second from ten seconds on.
func shortTime(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= 10*time.Second {
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	return d.String()
}
