//go:build !rlsonly

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/kit/bounded"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/httpapi"
	"github.com/headgate-rls/headgate/policies/table"
)

// policyColumns are the columns of a file of policies that export writes.
var policyColumns = []string{"key", "algorithm", "limit", "window", "rate", "burst"}

func policyExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print all policies as CSV or JSON, as import reads them",
		Example: `  headgate policy export >policies.csv
  headgate policy export --format json >policies.json`,
	}
	format := defineEnum(cmd, "format", "how to print the policies", "csv", "json")
	return policyStoreCommand(cmd, noArgs, func(ctx context.Context, e *table.Editor, _ []string) error {
		if format.value == "json" {
			w := &lister{json: cmd.OutOrStdout()}
			if err := eachPolicy(ctx, e.Store(), "", w.writePolicy); err != nil {
				return err
			}
			return w.end()
		}
		out := csv.NewWriter(cmd.OutOrStdout())
		_ = out.Write(policyColumns) // Error tells
		err := eachPolicy(ctx, e.Store(), "", func(p *table.Policy) error {
			return out.Write(policyCells(p))
		})
		out.Flush()
		return errors.Join(err, out.Error())
	})
}

func policyImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make and change policies as a CSV or JSON file says, all or none",
		Long: `Make and change policies as a file says, in one transaction, and print what has
changed. The first line of a CSV file is key,algorithm,limit,window,rate,burst, or in
older words key,type,capacity,refillRate,windowSeconds; a JSON file is an array of
objects with these fields. What SELECT * FROM throttlex_policy prints, with commas or
with tabs, is such a file as well. - reads the standard input.`,
		Example: `  headgate policy import policies.csv --dry-run
  headgate policy import policies.csv --replace`,
	}
	dryRun := cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
	replace := cmd.Flags().Bool("replace", false, "remove the policies that the file does not have")
	format := defineFormat(cmd)
	return policyStoreCommand(cmd, exactlyOne, func(ctx context.Context, e *table.Editor, args []string) error {
		in := cmd.InOrStdin()
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		}
		edits, err := readPolicies(args[0], bounded.Reader(in, maxPolicyFile))
		if err != nil {
			return wrongInput(err)
		}
		if *replace {
			keep := make(map[string]bool, len(edits))
			for i := range edits {
				keep[edits[i].Key] = true
			}
			err = eachPolicy(ctx, e.Store(), "", func(p *table.Policy) error {
				if !keep[p.Key] {
					edits = append(edits, table.Edit{Key: p.Key, Remove: true})
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return applyEdits(ctx, cmd, format, e, edits, *dryRun)
	})
}

// maxPolicyFile bounds a file of policies: 512 bytes for each that there may be.
const maxPolicyFile = table.MaxPolicies << 9

// readPolicies reads a file of policies: JSON if it begins with [, which no CSV file of them does.
func readPolicies(name string, in io.Reader) ([]table.Edit, error) {
	buffered := bufio.NewReader(in)
	start, _ := buffered.Peek(512) // an error comes again
	if bytes.HasPrefix(bytes.TrimLeft(start, " \t\r\n"), []byte("[")) {
		return readJSONPolicies(name, buffered)
	}
	return readCSVPolicies(name, buffered)
}

// policyCells is a line of a CSV file.
func policyCells(p *table.Policy) []string {
	w := p.Words()
	cells := []string{p.Key, w.Algorithm, "", w.Window, w.Rate, ""}
	if w.Limit != nil {
		cells[2] = strconv.FormatInt(*w.Limit, 10)
	}
	if w.Burst != 0 {
		cells[5] = strconv.FormatInt(w.Burst, 10)
	}
	return cells
}

// readCSVPolicies reads a file whose lines have commas or, as mysql --batch prints them, tabs.
func readCSVPolicies(name string, in *bufio.Reader) ([]table.Edit, error) {
	r := csv.NewReader(in)
	start, _ := in.Peek(512) // an error comes again
	if first, _, _ := bytes.Cut(start, []byte("\n")); bytes.ContainsRune(first, '\t') {
		r.Comma = '\t'
	}
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		err = errors.New("the file is empty; its first line must be " + strings.Join(policyColumns, ","))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.ReuseRecord = true
	head = dumpedColumns(head)
	if err := checkColumns(head); err != nil {
		return nil, fmt.Errorf("%s:1: %w", name, err)
	}
	var edits []table.Edit
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return edits, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		edit, err := readPolicy(head, fields)
		if err == nil && len(edits) == table.MaxPolicies {
			err = table.ErrTooMany
		}
		if err != nil {
			line, at := r.FieldPos(wrongColumn(head, err))
			return nil, fmt.Errorf("%s:%d:%d: %w", name, line, at, err)
		}
		edits = append(edits, edit)
	}
}

// dumped are the columns of the table throttlex_policy that have another name than in files; policies have no id.
var dumped = map[string]string{"policy_key": "key", "refill_rate": "refillRate", "window_seconds": "windowSeconds",
	"id": ignoredColumn}

const ignoredColumn = "-"

// dumpedColumns returns a first line with the names of files in place of those of the table.
func dumpedColumns(head []string) []string {
	isKey := func(name string) bool { return strings.EqualFold(name, "policy_key") }
	if !slices.ContainsFunc(head, isKey) {
		return head
	}
	names := slices.Clone(head)
	for i, name := range names {
		names[i] = cmp.Or(dumped[strings.ToLower(name)], name)
	}
	return names
}

// checkColumns refuses a first line that does not name the columns of policies.
func checkColumns(head []string) error {
	var g table.Given
	rules, older := g.Words()
	known := []string{"key", ignoredColumn}
	for _, w := range append(rules, older...) {
		known = append(known, w.Name)
	}
	for i, name := range head {
		if !slices.Contains(known, name) || slices.Contains(head[:i], name) {
			return fmt.Errorf("the columns are %q, want %q", head, policyColumns)
		}
	}
	if !slices.Contains(head, "key") {
		return errors.New("there is no column key")
	}
	return nil
}

// readPolicy reads one line.
func readPolicy(head, fields []string) (e table.Edit, err error) {
	if e.Key, err = policies.Normalize(fields[slices.Index(head, "key")]); err != nil {
		return e, err
	}
	var g table.Given
	rules, older := g.Words()
	for _, w := range append(rules, older...) {
		if i := slices.Index(head, w.Name); i >= 0 {
			*w.Text = fields[i]
		}
	}
	e.Figures, err = g.Figures()
	return e, err
}

// wrongColumn returns the column that an error is about; that of the key if it is about none.
func wrongColumn(head []string, err error) int {
	if word, ok := errors.AsType[*policies.WordError](err); ok && slices.Contains(head, word.Word) {
		return slices.Index(head, word.Word)
	}
	return slices.Index(head, "key")
}

// A policyRow is a policy in JSON.
type policyRow struct {
	Key string `json:"key"`
	policies.Words
	Version   int64     `json:"version"`
	ChangedBy string    `json:"changedBy"`
	ChangedAt time.Time `json:"changedAt,omitzero"`
}

func rowOf(p *table.Policy) *policyRow {
	if p == nil {
		return nil
	}
	return &policyRow{Key: p.Key, Words: p.Words(), Version: p.Version, ChangedBy: p.ChangedBy, ChangedAt: p.ChangedAt}
}

// writePolicy writes a policy as import reads it.
func (l *lister) writePolicy(p *table.Policy) error {
	return l.write(struct {
		Key string `json:"key"`
		policies.Words
	}{p.Key, p.Words()})
}

// readJSONPolicies reads a JSON file of policies: an array of objects.
func readJSONPolicies(name string, in io.Reader) ([]table.Edit, error) {
	lines := &lineReader{in: in}
	d := json.NewDecoder(lines)
	var edits []table.Edit
	wrong := func(at int64, err error) ([]table.Edit, error) {
		line, column := lines.place(at)
		return nil, fmt.Errorf("%s:%d:%d: %w", name, line, column, err)
	}
	if _, err := d.Token(); err != nil { // the [ that has led here
		return wrong(d.InputOffset(), err)
	}
	for d.More() {
		var text json.RawMessage
		if err := d.Decode(&text); err != nil {
			return wrong(d.InputOffset(), err)
		}
		edit, err := readJSONPolicy(text)
		if err == nil && len(edits) == table.MaxPolicies {
			err = table.ErrTooMany
		}
		if err != nil {
			return wrong(d.InputOffset()-int64(len(text)), err)
		}
		edits = append(edits, edit)
	}
	if _, err := d.Token(); err != nil {
		return wrong(d.InputOffset(), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return wrong(d.InputOffset(), errors.New("something follows the array"))
	}
	return edits, nil
}

// readJSONPolicy reads one element.
func readJSONPolicy(text []byte) (table.Edit, error) {
	var body httpapi.Body
	if err := web.Decode(text, &body); err != nil {
		return table.Edit{}, err
	}
	return body.Edit()
}

// A lineReader remembers where the lines of what was read end.
type lineReader struct {
	in   io.Reader
	read int64
	ends []int64
}

func (r *lineReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			r.ends = append(r.ends, r.read+int64(i))
		}
	}
	r.read += int64(n)
	return n, err
}

// place returns the line and the column of a byte, both from 1.
func (r *lineReader) place(at int64) (line, column int) {
	line, _ = slices.BinarySearch(r.ends, at)
	start := int64(0)
	if line > 0 {
		start = r.ends[line-1] + 1
	}
	return line + 1, int(at-start) + 1
}
