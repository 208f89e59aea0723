// Command notify-sender sends the messages that notify-gateway has queued.
package main

import (
	"context"
	"os"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/notify/serve"
)

// version is set by the linker (see Makefile).
var version = ""

func main() {
	program := serve.Program[*config.NotifySender]{
		Name: "notify-sender", Short: "Send queued messages", Version: version,
		Define: config.DefineNotifySender, Serve: serve.Sender,
	}
	os.Exit(program.Run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
