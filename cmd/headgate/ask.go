package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/ratelimit"
)

type askOptions struct {
	addr    string
	rules   []string
	count   int
	hits    uint32
	timeout time.Duration

	tls           bool
	ca, cert, key string
	serverName    string
}

func askCommand() *cobra.Command {
	var opt askOptions
	cmd := &cobra.Command{
		Use:   "ask DOMAIN KEY=VALUE[,KEY=VALUE…] […]",
		Short: "Ask a running service, or rules in files, as Envoy would",
		Long: `Ask a running service, or rules in files, as Envoy would.

Each KEY=VALUE list is one descriptor. A comma in a value is written \,

One line is printed per answer. The exit code is 0 if every answer was OK,
3 if one was over the limit, 2 if one could not be had.`,
		Example: `  headgate ask example client=alice
  headgate ask shop tenant=acme,path=/pay tenant=acme -n 5
  headgate ask shop tenant=acme --rules rules/ -n 700`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), cmd.OutOrStdout(), args[0], args[1:], opt)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opt.addr, "addr", "127.0.0.1:8081", "`address` of the service: host:port, unix:PATH or unix:@NAME")
	f.StringArrayVar(&opt.rules, "rules", nil, "decide by the rules in this `file or directory`, without a service")
	f.IntVarP(&opt.count, "count", "n", 1, "how often to ask")
	f.Uint32Var(&opt.hits, "hits", 1, "hits of each request")
	f.DurationVar(&opt.timeout, "timeout", time.Second, "longest wait for an answer")
	f.BoolVar(&opt.tls, "tls", false, "ask over TLS")
	f.StringVar(&opt.ca, "tls-ca", "", "`file` with the authorities to trust; implies --tls (default: the system's)")
	f.StringVar(&opt.cert, "tls-cert", "", "client certificate `file`; implies --tls")
	f.StringVar(&opt.key, "tls-key", "", "client key `file`")
	f.StringVar(&opt.serverName, "tls-server-name", "", "`name` that the service's certificate must have, if not that of --addr")
	cmd.MarkFlagsMutuallyExclusive("addr", "rules")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	return cmd
}

// An asker answers one request.
type asker func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error)

func ask(ctx context.Context, out io.Writer, domain string, args []string, opt askOptions) error {
	req := &rls.RateLimitRequest{Domain: domain, HitsAddend: opt.hits}
	for _, arg := range args {
		d, err := parseDescriptor(arg)
		if err != nil {
			return err
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	answer, closer, err := opt.asker()
	if err != nil {
		return err
	}
	defer closer()
	over := false
	for range opt.count {
		callCtx, cancel := context.WithTimeout(ctx, opt.timeout)
		resp, err := answer(callCtx, req)
		cancel()
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		fmt.Fprintln(out, answerLine(req, resp))
		over = over || resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT
	}
	if over {
		return exitCode(exitOverLimit)
	}
	return nil
}

func (opt *askOptions) asker() (asker, func(), error) {
	if len(opt.rules) > 0 {
		answer, err := localAsker(opt.rules)
		return answer, func() {}, err
	}
	creds, err := opt.credentials()
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient(grpcTarget(opt.addr), grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, nil, fmt.Errorf("--addr %s: %w", opt.addr, err)
	}
	client := rls.NewRateLimitServiceClient(conn)
	answer := func(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		resp, err := client.ShouldRateLimit(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("service at %s: %w", opt.addr, err)
		}
		return resp, nil
	}
	return answer, func() { _ = conn.Close() }, nil
}

// credentials returns how to connect: in plain unless a flag says TLS.
func (opt *askOptions) credentials() (credentials.TransportCredentials, error) {
	if !opt.tls && opt.ca == "" && opt.cert == "" {
		return insecure.NewCredentials(), nil
	}
	conf := &tls.Config{ServerName: opt.serverName, MinVersion: tls.VersionTLS12}
	if opt.ca != "" {
		pem, err := os.ReadFile(opt.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca %s: no certificate in it", opt.ca)
		}
	}
	if opt.cert != "" {
		pair, err := tls.LoadX509KeyPair(opt.cert, opt.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(conf), nil
}

// grpcTarget returns addr as grpc-go's resolvers spell it.
func grpcTarget(addr string) string {
	if name, ok := strings.CutPrefix(addr, "unix:@"); ok {
		return "unix-abstract:" + name
	}
	if strings.HasPrefix(addr, "unix:") {
		return addr
	}
	return "passthrough:///" + addr
}

// localAsker answers from rules in files and a memory of its own.
func localAsker(paths []string) (asker, error) {
	set, err := loadRules(paths, false)
	if err != nil {
		return nil, err
	}
	be := memory.New(memory.Config{})
	s, err := ratelimit.New(ratelimit.Config{
		Backend: be, Caps: memory.Caps(), Local: be,
		Now: newClock().now, Log: slog.New(slog.DiscardHandler),
	}, set)
	if err != nil {
		return nil, err
	}
	return s.ShouldRateLimit, nil
}

// parseDescriptor reads "key=value,key=value"; "\," is a comma in a value.
func parseDescriptor(arg string) (*common.RateLimitDescriptor, error) {
	d := new(common.RateLimitDescriptor)
	const comma = "\x00"
	for part := range strings.SplitSeq(strings.ReplaceAll(arg, `\,`, comma), ",") {
		key, value, ok := strings.Cut(strings.ReplaceAll(part, comma, ","), "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("descriptor %q: %w", arg, errors.New("want KEY=VALUE[,KEY=VALUE…]"))
		}
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d, nil
}

// answerLine renders an answer in one line.
func answerLine(req *rls.RateLimitRequest, resp *rls.RateLimitResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s", resp.OverallCode)
	meta := resp.GetDynamicMetadata().GetFields()
	if rule := meta["rule"].GetStringValue(); rule != "" {
		fmt.Fprintf(&b, " rule=%s", rule)
	}
	if how := meta["degraded"].GetStringValue(); how != "" {
		fmt.Fprintf(&b, " degraded=%s", how)
	}
	for i, st := range resp.Statuses {
		b.WriteString(" [")
		for j, e := range req.Descriptors[i].Entries {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%s=%s", e.Key, e.Value)
		}
		b.WriteString(statusText(st))
		b.WriteByte(']')
	}
	return b.String()
}

func statusText(st *rls.RateLimitResponse_DescriptorStatus) string {
	l := st.CurrentLimit
	switch {
	case l == nil && st.LimitRemaining > 0:
		return " unlimited"
	case l == nil:
		return " no limit"
	}
	unit := strings.ToLower(l.Unit.String())
	if n := l.GetUnitMultiplier().GetValue(); n > 1 {
		unit = fmt.Sprintf("%d %ss", n, unit)
	}
	if l.Unit == rls.RateLimitResponse_RateLimit_UNKNOWN {
		unit = "window"
	}
	name := ""
	if l.Name != "" {
		name = " " + l.Name
	}
	wait := "reset"
	if st.Code == rls.RateLimitResponse_OVER_LIMIT {
		wait = "retry"
	}
	return fmt.Sprintf(" %s%s limit=%d/%s remaining=%d %s=%ds", st.Code, name, l.RequestsPerUnit, unit,
		st.LimitRemaining, wait, st.GetDurationUntilReset().GetSeconds())
}
