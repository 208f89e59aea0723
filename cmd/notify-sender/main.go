package main

import (
	"context"
	"os"

	"github.com/headgate-rls/headgate/notify/serve"
)

// version is set by the linker (see Makefile).
var version = ""

func main() {
	program := serve.Program[*serve.SenderSettings]{
		Name: "notify-sender", Short: "Send queued messages", Version: version,
		Settings: new(serve.SenderSettings), Serve: serve.Sender,
	}
	os.Exit(program.Run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
