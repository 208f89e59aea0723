package unary_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net"
	"time"

	"github.com/headgate-rls/headgate/internal/wire/unary"
)

// A method that is answered where its bytes are read, because that needs no
// I/O.
func Example() {
	server, err := unary.New(unary.Config{
		Handlers: map[string]unary.Handler{
			"/example.Text/Upper": {
				Inline: func(_ context.Context, calls []*unary.Call) []*unary.Call {
					for _, call := range calls {
						if len(call.Message) == 0 {
							call.Err = &unary.Status{Code: unary.InvalidArgument, Message: "empty"}
							continue
						}
						call.Reply = append(call.Reply, bytes.ToUpper(call.Message)...)
					}
					return nil // none is left to Serve
				},
			},
		},
		UnknownHint: "reflection is served on port 8082",
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, unary.ErrClosed) {
			log.Print(err)
		}
	}()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Print(err)
	}
	// Output:
}
