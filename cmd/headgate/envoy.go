//go:build !rlsonly

package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/envoyconf"
	"github.com/headgate-rls/headgate/ratelimit"
)

type envoyOptions struct {
	envoyconf.Options
	version  string
	istio    bool
	full     bool
	merge    bool
	partial  bool
	leaseTTL time.Duration
}

func envoyCommand() *cobra.Command {
	var opt envoyOptions
	cmd := &cobra.Command{
		Use:   "envoy PATH…",
		Short: "Print the Envoy configuration that rules need",
		Long: `Print the Envoy configuration for the rules in files and directories: the calls
that ask headgate about each request and report its end, and the statuses and
delays of tiers.

The configuration is complete: clients -> Envoy (--listen) -> application
(--upstream). Give every Envoy its own --owner; docs/concurrency.md explains
why, and which name to use for an Envoy that restarts.

If the rules do not say which Envoy action sends a descriptor's values, those
rules would limit nothing: the command lists them, prints no configuration and
exits with 1. With --partial it prints the rest, with a comment that says what
to add.`,
		Example: `  headgate envoy rules/ --owner envoy-1 >envoy.yaml
  headgate envoy rules/ --full=false            only the parts, to paste
  headgate envoy rules/ --istio --istio-service headgate.infra.svc.cluster.local --selector app=shop
  headgate envoy rules/ --tls-ca ca.crt --san headgate.infra --address headgate.infra:8081 \
    --services headgate.infra:8082`,
		Args: atLeast(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opt.istio && !cmd.Flags().Changed("owner") {
				opt.Owner = envoyconf.IstioOwner
			}
			if !opt.istio && (opt.Istio.Service != "" || opt.Istio.Name != "" || opt.Istio.Namespace != "" ||
				len(opt.Istio.Selector) > 0) {
				return inputError{errors.New("--istio-service, --name, --namespace and --selector are for --istio")}
			}
			return printEnvoy(cmd.OutOrStdout(), cmd.ErrOrStderr(), args, &opt)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&opt.version, "envoy-version", "1.40", "oldest `version` of Envoy that must accept the output")
	f.BoolVar(&opt.full, "full", true, "print a complete configuration; =false prints the parts to paste into one")
	f.BoolVar(&opt.istio, "istio", false, "print an EnvoyFilter for Istio's sidecars")
	f.StringVar(&opt.Istio.Service, "istio-service", "", "`host` of headgate's Service, "+
		"as NAME.NAMESPACE.svc.cluster.local: sidecars ask the mesh's clusters, ports 8081 and 8082")
	f.StringVar(&opt.Istio.Name, "name", "", "`name` of the EnvoyFilter (default headgate)")
	f.StringVar(&opt.Istio.Namespace, "namespace", "", "`namespace` of the EnvoyFilter (default: that of who applies it)")
	f.StringSliceVar(&opt.Istio.Selector, "selector", nil,
		"`NAME=VALUE`: a label of the pods that the EnvoyFilter is for; may be repeated (default: all pods of its namespace)")
	f.StringVar(&opt.Domain, "domain", "", "`domain` to configure; required if the rules have several")
	f.StringSliceVar(&opt.Address, "address", []string{"127.0.0.1:8081"},
		"`address` of headgate: host:port or unix:PATH; may be repeated")
	f.StringSliceVar(&opt.Services, "services", []string{"127.0.0.1:8082"},
		"`address` of headgate's other services (serve --services), where the access log goes; may be repeated")
	f.StringVar(&opt.TLS.CA, "tls-ca", "", "`file`, on Envoy's side, with the authority of headgate's certificate: "+
		"calls go over TLS")
	f.StringVar(&opt.TLS.Cert, "tls-cert", "", "`file` with Envoy's client certificate")
	f.StringVar(&opt.TLS.Key, "tls-key", "", "`file` with its key")
	f.StringSliceVar(&opt.TLS.SANs, "san", nil, "`name` that headgate's certificate must have: "+
		"a DNS name or a URI such as spiffe://…; may be repeated: one of them is enough")
	f.StringSliceVar(&opt.Upstream, "upstream", []string{"127.0.0.1:9000"},
		"`address` of the application; for rules with choose NAME=ADDRESS of each cluster, repeated")
	f.IntVar(&opt.Listen, "listen", 10000, "`port` for clients")
	f.StringVar(&opt.Admin, "admin", "127.0.0.1:9901", "`address` of Envoy's admin pages")
	f.DurationVar(&opt.Timeout, "timeout", 500*time.Millisecond, "timeout of a call to headgate")
	f.BoolVar(&opt.Deny, "deny-without-answer", false,
		"reject requests with status 500 when headgate does not answer (default: let them pass)")
	f.StringVar(&opt.Tokens, "tokens", envoyconf.TokensLua,
		"who reads the tokens of calls to language models: lua, or native for Envoy itself, from 1.40 on")
	f.StringVar(&opt.LeaseKey, "lease-key", ratelimit.DefaultLeaseKey,
		"`name` of the lease in Envoy's dynamic metadata; one for each filter that asks headgate about a request")
	f.StringVar(&opt.Owner, "owner", "envoy",
		"`name` of this Envoy, or %ENVIRONMENT(NAME)% for what it is started with as --service-node")
	f.DurationVar(&opt.OwnerGrace, "owner-grace", 15*time.Second, "the --owner-grace of serve")
	f.DurationVar(&opt.leaseTTL, "lease-ttl", 300*time.Second, "the --lease-ttl of serve")
	f.BoolVar(&opt.partial, "partial", false, "print the configuration even if it leaves out some rules")
	f.BoolVar(&opt.merge, "merge-domains", false, "allow several files for one domain")
	return cmd
}

func printEnvoy(out, errOut io.Writer, paths []string, opt *envoyOptions) error {
	var err error
	if opt.Version, err = envoyconf.ParseVersion(opt.version); err != nil {
		return inputError{fmt.Errorf("--envoy-version: %w", err)}
	}
	set, spec, err := files.Load(paths, rulefile.Options{MergeDomains: opt.merge, DefaultLeaseTTL: opt.leaseTTL})
	if err != nil {
		return wrongInput(err)
	}
	conf, err := envoyconf.New(set, spec, opt.Options)
	if err != nil {
		return inputError{err}
	}
	if left := conf.LeftOut(); left != "" {
		fmt.Fprintln(errOut, left)
		if !opt.partial {
			fmt.Fprintln(errOut,
				"No configuration is printed, because these rules would limit nothing; --partial prints the rest.")
			return exitCode(exitProblems)
		}
	}
	var text []byte
	switch {
	case opt.istio:
		text, err = conf.EnvoyFilter()
	case opt.full:
		text, err = conf.Bootstrap()
	default:
		text, err = conf.Fragments()
	}
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}
