package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A burst is requests of one client for one path, as fast as they are answered.
type burst struct {
	path, tenant string
	count        int
	refused      bool // some are to be refused
	remark       string
}

var bursts = []burst{
	{"/items", "acme", 25, true, "10 at once, then 5 per second"},
	{"/items?page=2", "acme", 5, true, "the query makes no other path"},
	{"/items", "other", 5, false, "each tenant has its own"},
	{"/pay", "acme", 6, true, "exactly 3 in any 10 seconds"},
	{"/reports/7", "acme", 6, false, "a limit on trial refuses nothing"},
	{"/healthz", "", 20, false, "not limited"},
}

// An outcome is what became of a burst.
type outcome struct {
	codes map[int]int
	rule  string // that refused
	last  *http.Response
	body  string
}

// show sends the bursts through Envoy and prints what became of them. Its error
// says what was not as it should be.
func show(ctx context.Context, out io.Writer, url string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "path\ttenant\tsent\t200\t429\tx-headgate-rule\tretry-after\tx-ratelimit-remaining\twhat it shows")
	var wrong []string
	var refusal outcome
	for _, b := range bursts {
		o, err := b.send(ctx, url)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", b.path, dash(b.tenant), b.count, o.codes[200],
			o.codes[429],
			dash(o.rule), dash(o.last.Header.Get("retry-after")), dash(o.last.Header.Get("x-ratelimit-remaining")), b.remark)
		if bad := b.judge(o); bad != "" {
			wrong = append(wrong, bad)
		}
		if o.rule != "" {
			refusal = o
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if refusal.last != nil {
		printRefusal(out, refusal)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("not as it should be:\n  %s", strings.Join(wrong, "\n  "))
	}
	return nil
}

// judge says what is wrong with an outcome, or nothing.
func (b burst) judge(o outcome) string {
	switch {
	case o.codes[200]+o.codes[429] != b.count:
		return fmt.Sprintf("%s: of %d requests the answers were %v", b.path, b.count, o.codes)
	case b.refused && o.codes[429] == 0:
		return fmt.Sprintf("%s: none of %d requests was refused", b.path, b.count)
	case !b.refused && o.codes[429] > 0:
		return fmt.Sprintf("%s: %d of %d requests were refused", b.path, o.codes[429], b.count)
	}
	return ""
}

// send sends the requests, one after the other.
func (b burst) send(ctx context.Context, url string) (outcome, error) {
	o := outcome{codes: map[int]int{}}
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for range b.count {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+b.path, nil)
		if err != nil {
			return o, err
		}
		if b.tenant != "" {
			req.Header.Set("x-tenant", b.tenant)
		}
		resp, err := client.Do(req)
		if err != nil {
			return o, fmt.Errorf("ask Envoy: %w", err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return o, fmt.Errorf("ask Envoy: %w", err)
		}
		o.codes[resp.StatusCode]++
		o.last, o.body = resp, string(body)
		if rule := resp.Header.Get("x-headgate-rule"); rule != "" {
			o.rule = rule
		}
	}
	return o, nil
}

// printRefusal prints a refused answer as the client got it.
func printRefusal(out io.Writer, o outcome) {
	fmt.Fprintf(out, "\nA refusal in full:\n\n  %s %s\n", o.last.Proto, o.last.Status)
	var names []string
	for name := range o.last.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(out, "  %s: %s\n", strings.ToLower(name), strings.Join(o.last.Header[name], ", "))
	}
	fmt.Fprintf(out, "\n  %s\n", strings.TrimSpace(o.body))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
