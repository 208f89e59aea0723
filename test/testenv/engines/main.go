// Command engines prints for "make test" which servers tests run against.
//
//	engines list        prints the engines that set-up installs, comma separated
//	engines report DIR  prints which of them ran, from the notes in DIR, and
//	                    fails if one that HEADGATE_TEST_MUSTRUN names did not
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/headgate-rls/headgate/test/testenv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "list":
		fmt.Println(strings.Join(testenv.Installable(), ","))
		return nil
	case len(args) == 2 && args[0] == "report":
		return testenv.WriteReport(os.Stdout, args[1], os.Getenv(testenv.EnvMustRun))
	default:
		return fmt.Errorf("usage: engines list | engines report DIR")
	}
}
