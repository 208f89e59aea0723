package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/policies"
)

// policyColumns are the columns of a file of policies, as its first line names them.
var policyColumns = []string{"key", "type", "capacity", "refillRate", "windowSeconds"}

func policyExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print all policies as CSV or JSON, as import reads them",
		Example: `  headgate policy export >policies.csv
  headgate policy export --format json >policies.json`,
	}
	format := cmd.Flags().String("format", "csv", "csv or json")
	return policyStoreCommand(cmd, noArgs, func(ctx context.Context, e *policies.Editor, _ []string) error {
		switch *format {
		case "csv":
		case "json":
			w := &jsonWriter{out: cmd.OutOrStdout()}
			if err := eachPolicy(ctx, e.Store(), "", w.writePolicy); err != nil {
				return err
			}
			return w.end()
		default:
			return fmt.Errorf("--format: must be csv or json, not %q", *format)
		}
		out := csv.NewWriter(cmd.OutOrStdout())
		_ = out.Write(policyColumns) // Error tells
		err := eachPolicy(ctx, e.Store(), "", func(p *policies.Policy) error {
			return out.Write([]string{p.Key, policies.TypeOf(p.Algorithm), strconv.FormatInt(p.Capacity, 10), p.Refill.String(), p.Window.String()})
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
changed. The first line of a CSV file is key,type,capacity,refillRate,windowSeconds; a
JSON file is an array of objects with these fields. - reads the standard input.`,
		Example: `  headgate policy import policies.csv --dry-run
  headgate policy import policies.csv --replace`,
	}
	dryRun := cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
	replace := cmd.Flags().Bool("replace", false, "remove the policies that the file does not have")
	return policyStoreCommand(cmd, exactlyOne, func(ctx context.Context, e *policies.Editor, args []string) error {
		in := cmd.InOrStdin()
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		}
		edits, err := readPolicies(args[0], in)
		if err != nil {
			return err
		}
		if *replace {
			keep := make(map[string]bool, len(edits))
			for i := range edits {
				keep[edits[i].Key] = true
			}
			err = eachPolicy(ctx, e.Store(), "", func(p *policies.Policy) error {
				if !keep[p.Key] {
					edits = append(edits, policies.Edit{Key: p.Key, Remove: true})
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return applyEdits(ctx, cmd, e, edits, *dryRun)
	})
}

// readPolicies reads a file of policies: JSON if it begins with [, which no CSV file of them does.
func readPolicies(name string, in io.Reader) ([]policies.Edit, error) {
	buffered := bufio.NewReader(in)
	start, _ := buffered.Peek(512) // an error comes again
	if bytes.HasPrefix(bytes.TrimLeft(start, " \t\r\n"), []byte("[")) {
		return readJSONPolicies(name, buffered)
	}
	return readCSVPolicies(name, buffered)
}

func readCSVPolicies(name string, in io.Reader) ([]policies.Edit, error) {
	r := csv.NewReader(in)
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !slices.Equal(head, policyColumns) {
		return nil, fmt.Errorf("%s:1: the columns are %q, want %q", name, head, policyColumns)
	}
	var edits []policies.Edit
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return edits, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		edit, column, err := readPolicy(fields)
		if err == nil && len(edits) == policies.MaxPolicies {
			err = policies.ErrTooMany
		}
		if err != nil {
			line, at := r.FieldPos(column)
			return nil, fmt.Errorf("%s:%d:%d: %w", name, line, at, err)
		}
		edits = append(edits, edit)
	}
}

// readPolicy reads one line. After an error column is the wrong one.
func readPolicy(fields []string) (e policies.Edit, column int, err error) {
	if e.Key, err = policies.Normalize(fields[0]); err != nil {
		return e, 0, err
	}
	if e.Algorithm, err = policies.ParseType(fields[1]); err != nil {
		return e, 1, err
	}
	if e.Capacity, err = strconv.ParseInt(fields[2], 10, 64); err != nil {
		return e, 2, fmt.Errorf("capacity %.40q is not a whole number", fields[2])
	}
	if e.Refill, err = policies.ParseAmount(fields[3]); err != nil {
		return e, 3, fmt.Errorf("refillRate: %w", err)
	}
	if e.Window, err = policies.ParseAmount(fields[4]); err != nil {
		return e, 4, fmt.Errorf("windowSeconds: %w", err)
	}
	_, err = e.Figures.Limit()
	return e, 0, err
}
