package gateway

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/notify/serve"
	"github.com/headgate-rls/headgate/test/wired"
)

// notifyProgram is one of the two programs, as the tests need it.
type notifyProgram struct {
	name, prefix string
	needed       []string // flags without which it does not start
}

var notifyPrograms = []*notifyProgram{
	{name: "gateway", prefix: "NOTIFY_GATEWAY", needed: []string{"--database", "postgres://u:s3cret-in-url@h/n"}},
	{name: "sender", prefix: "NOTIFY_SENDER"},
}

// resolve returns the error of a program's settings, and what its log says at start.
func (p *notifyProgram) resolve(t *testing.T, args, environ []string) (log string, err error) {
	t.Helper()
	var c serve.Settings = new(serve.SenderSettings)
	if p.name == "gateway" {
		c = new(Settings)
	}
	fs := pflag.NewFlagSet(p.name, pflag.ContinueOnError)
	c.Program().Define(fs)
	var warnings []string
	if err = fs.Parse(append(append([]string{}, p.needed...), args...)); err == nil {
		warnings, err = c.Program().Resolve(fs, environ, nil)
	}
	var out bytes.Buffer
	c.Logger(&out, append(warnings, c.Unwise()...))
	return out.String(), err
}

func TestNotifySettings(t *testing.T) {
	gateway, sender := notifyPrograms[0], notifyPrograms[1]
	for _, c := range []struct {
		program *notifyProgram
		args    []string
		environ []string
		want    []string
	}{
		{gateway, []string{"--databse=x"}, nil, []string{"unknown flag: --databse"}},
		{gateway, []string{"--delivery=outbocks"}, nil, []string{"--delivery", "direct", "outbox"}},
		{gateway, []string{"--pool-max=2"}, nil, []string{"--pool-max", "--pool-min"}},
		{gateway, []string{"--publish-timeout=6s"}, nil, []string{"--publish-timeout", "--request-timeout (5s)"}},
		{gateway, []string{"--kafka-sasl=scram", "--kafka-username=u", "--kafka-password=s3cret"}, nil,
			[]string{"--kafka-sasl", "scram-sha-512", `"scram"`}},
		{gateway, []string{"--kafka-sasl=plain", "--kafka-password=s3cret"}, nil,
			[]string{"--kafka-sasl", "needs --kafka-username"}},
		{gateway, []string{"--kafka-sasl=plain", "--kafka-username=u", "--kafka-password=s3cret", "--kafka-password-file=f"},
			nil, []string{"--kafka-sasl", "either --kafka-password or"}},
		{gateway, []string{"--kafka-username=u"}, nil, []string{"--kafka-username", "needs --kafka-sasl"}},
		{gateway, []string{"--kafka-tls-ca=f"}, nil, []string{"--kafka-tls-ca", "needs --kafka-tls"}},
		{sender, []string{"--kafka-tls", "--kafka-tls-cert=f"}, nil, []string{"--kafka-tls-cert", "needs --kafka-tls-key"}},
		{gateway, []string{"--publish-linger=2s"}, nil, []string{"--publish-linger", "half of --publish-timeout (2s)"}},
		{gateway, []string{"--config-token=short-secret"}, nil, []string{"--config-token", "has 12 characters"}},
		{gateway, []string{"--kafka=nowhere"}, nil, []string{"--kafka", "nowhere"}},
		{gateway, []string{"--topic="}, nil, []string{"--topic"}},
		{gateway, []string{"--topic-partitions=0"}, nil, []string{"--topic-partitions"}},
		{gateway, []string{"--sync-delay=2m"}, nil, []string{"--sync-delay"}},
		{gateway, []string{"--redis-max-ttl=10ms"}, nil, []string{"--redis-max-ttl"}},
		{gateway, []string{"--outbox-max=0"}, nil, []string{"--outbox-max"}},
		{gateway, []string{"--max-requests=0"}, nil, []string{"--max-requests"}},
		{gateway, []string{"--log-level=loud"}, nil, []string{"--log-level"}},
		{gateway, nil, []string{"NOTIFY_GATEWAY_POOL_MAX=many"},
			[]string{"environment variable NOTIFY_GATEWAY_POOL_MAX", "many"}},
		{sender, []string{"--webhok=http://h"}, nil, []string{"unknown flag: --webhok"}},
		{sender, []string{"--webhook=ftp://h/s3cret"}, nil, []string{"--webhook"}},
		{sender, []string{"--webhook-token=s3cret\n"}, nil, []string{"--webhook-token"}},
		{sender, []string{"--webhook-attempts=0"}, nil, []string{"--webhook-attempts"}},
		{sender, []string{"--webhook-timeout=0s"}, nil, []string{"--webhook-timeout"}},
		{sender, []string{"--dead-letter-topic=sms-outbound"}, nil, []string{"--dead-letter-topic", "for ever"}},
		{sender, []string{"--group="}, nil, []string{"--group"}},
		{sender, nil, []string{"NOTIFY_SENDER_LOG_FORMAT=xml"}, []string{"--log-format", "xml"}},
	} {
		_, err := c.program.resolve(t, c.args, c.environ)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v %v: %v, want %q in it", c.program.name, c.args, c.environ, err, want)
			}
		}
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "short-secret")) {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

func TestNotifyFiles(t *testing.T) {
	for _, p := range notifyPrograms {
		file := filepath.Join(t.TempDir(), "conf.yaml")
		if err := os.WriteFile(file, []byte("topic: x\nkafak: h:1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.resolve(t, []string{"--config", file}, nil); err == nil ||
			!strings.Contains(err.Error(), "conf.yaml:2:1: kafak: unknown setting; did you mean kafka?") {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// TestNotifyVariables: an unknown one is named in the log, without its value; those of other
// programs are not.
func TestNotifyVariables(t *testing.T) {
	for _, p := range notifyPrograms {
		log, err := p.resolve(t, nil, []string{p.prefix + "_TOPCI=s3cret", "NOTIFY_SOCKET=/run/s", "HEADGATE_BACKEND=x"})
		if err != nil {
			t.Fatal(err)
		}
		want := "unknown environment variable " + p.prefix + "_TOPCI has no effect; did you mean " + p.prefix + "_TOPIC?"
		if !strings.Contains(log, want) || strings.Contains(log, "s3cret") || strings.Contains(log, "NOTIFY_SOCKET") ||
			strings.Contains(log, "HEADGATE_BACKEND") {
			t.Errorf("%s: the log has %q, want %q", p.name, log, want)
		}
	}
}

func TestTheDatabaseIsRequired(t *testing.T) {
	fs := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	c := new(Settings)
	c.Program().Define(fs)
	if _, err := c.Program().Resolve(fs, nil, nil); err == nil || !strings.Contains(err.Error(), "--database") {
		t.Errorf("%v", err)
	}
}

func TestAnOpenConfigPathIsNamed(t *testing.T) {
	const text = "without --config-token"
	for address, named := range map[string]bool{":8080": true, "127.0.0.1:8080": false} {
		log, err := notifyPrograms[0].resolve(t, []string{"--http", address}, nil)
		if err != nil || strings.Contains(log, text) != named {
			t.Errorf("%s: %v, %q", address, err, log)
		}
	}
	log, err := notifyPrograms[0].resolve(t, []string{"--config-token", strings.Repeat("x", 32)}, nil)
	if err != nil || strings.Contains(log, text) {
		t.Errorf("with a token: %v, %q", err, log)
	}
}

func TestAPasswordThatOthersCanReadIsNamed(t *testing.T) {
	const text = "can read the password"
	for _, p := range notifyPrograms {
		for tls, named := range map[string]bool{"--kafka-tls=false": true, "--kafka-tls": false} {
			log, err := p.resolve(t, []string{tls, "--kafka-sasl", "plain", "--kafka-username", "u"},
				[]string{p.prefix + "_KAFKA_PASSWORD=s3cret"})
			if err != nil || strings.Contains(log, text) != named || strings.Contains(log, "s3cret") {
				t.Errorf("%s %s: %v, %q", p.name, tls, err, log)
			}
		}
	}
}

// TestSettingsReachTheParts of the gateway.
func TestSettingsReachTheParts(t *testing.T) {
	wired.Check(t, func() (settings.Program, func() any) {
		c := new(Settings)
		return c.Program(), func() any { return c.parts() }
	}, "config", "http", "debug", "migrate", "redis", "start-wait", "drain-delay", "drain-timeout",
		"log-level", "log-format")
	direct, outbox := Settings{Delivery: deliverDirect}, Settings{Delivery: deliverOutbox}
	if d, o := direct.parts(), outbox.parts(); d.optional || !o.optional || d.store.Outbox || !o.store.Outbox ||
		d.within == relayTimeout || o.within != relayTimeout {
		t.Errorf("direct: %+v, by the outbox: %+v", d, o)
	}
}
