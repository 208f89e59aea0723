package main

import "github.com/headgate-rls/headgate/test/testenv"

// A benchTB is what a table starts servers with.
type benchTB = testenv.Servers

// withServers runs f, which may start servers by testenv, and stops them.
func withServers(name string, f func(tb *benchTB) error) (skipped string, err error) {
	return testenv.WithServers(name, f)
}
