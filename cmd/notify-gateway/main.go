package main

import (
	"context"
	"os"

	"github.com/headgate-rls/headgate/notify/gateway"
	"github.com/headgate-rls/headgate/notify/serve"
)

// version is set by the linker (see Makefile).
var version = ""

func main() {
	program := serve.Program[*gateway.Settings]{
		Name: "notify-gateway", Short: "Limit and queue messages to users", Version: version,
		Settings: new(gateway.Settings), Serve: gateway.Run,
	}
	os.Exit(program.Run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
