//go:build !rlsonly

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/ruletest"
)

func testCommand() *cobra.Command {
	var format *format
	var filter string
	cmd := &cobra.Command{
		Use:   "test FILE…",
		Short: "Test rules: what is asked when, and what must be answered",
		Long: `Run tests of rules. A file of tests names rules, and for each test steps: at which time what is
asked, and what must be answered. Time is virtual, and the counters are in memory.

The exit code is 0 if all tests pass, 3 if one fails, 1 if a file is wrong, and 2 if
one cannot be read. docs/change.md has the fields of steps.`,
		Example: `  headgate test tests/*.test.yaml
  headgate test shop.test.yaml --run burst
  headgate test shop.test.yaml --format junit >report.xml`,
		Args: atLeast(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var results []ruletest.Result
			good, ran := true, 0
			for _, name := range args {
				r, err := ruletest.Run(name, filter)
				if err != nil {
					return wrongInput(err)
				}
				good, ran, results = good && r.OK, ran+len(r.Tests), append(results, r)
			}
			if ran == 0 {
				return wrongInput(fmt.Errorf("no test has %q in its name", filter))
			}
			write := ruletest.WriteText
			if format.value == "junit" {
				write = ruletest.WriteJUnit
			}
			if err := write(format.writer(cmd.OutOrStdout(), results), results); err != nil {
				return err
			}
			return exitIf(!good, exitNo)
		},
	}
	format = defineFormat(cmd, "junit")
	cmd.Flags().StringVar(&filter, "run", "", "run only the tests with this `text` in their names")
	return cmd
}
