//go:build !rlsonly

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/httpapi"
	"github.com/headgate-rls/headgate/policies/table"
)

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
