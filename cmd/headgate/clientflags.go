package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
)

// defineClient adds the flags of a command that asks a running service over gRPC.
func defineClient(cmd *cobra.Command, opt *client.Options) {
	f := cmd.Flags()
	f.StringVar(&opt.Addr, "addr", client.LocalAddress("grpc", "127.0.0.1:8081"),
		"`address` of the service: host:port, unix:PATH or unix:@NAME; HEADGATE_GRPC changes the default")
	f.DurationVar(&opt.Timeout, "timeout", time.Second, "longest wait for an answer")
	f.BoolVar(&opt.TLS, "tls", false, "use TLS")
	f.StringVar(&opt.CA, "tls-ca", "", "`file` with trusted CA certificates; implies --tls (default: the system's)")
	f.StringVar(&opt.Cert, "tls-cert", "", "client certificate `file`; implies --tls")
	f.StringVar(&opt.Key, "tls-key", "", "client key `file`")
	f.StringVar(&opt.ServerName, "tls-server-name", "",
		"expected `name` in the service's certificate (default: the host of --addr)")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
}

// defineAPI adds the flags of a command that asks the HTTP API; url is where it is
// unless they say otherwise.
func defineAPI(cmd *cobra.Command, api *client.API, url string) {
	f := cmd.Flags()
	f.StringVar(&api.Addr, "addr", url,
		"`URL` of the service; the service's own settings in the environment change the default")
	f.DurationVar(&api.Timeout, "timeout", 10*time.Second, "longest wait for an answer")
	f.StringVar(&api.CA, "tls-ca", "", "`file` with trusted CA certificates (default: the system's)")
	f.StringVar(&api.Cert, "tls-cert", "", "client certificate `file`")
	f.StringVar(&api.Key, "tls-key", "", "client key `file`")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
}
