package kafka

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestBrokersThatAskWhoIsThere: a message is published and consumed over TLS, with each way to log
// in and with a certificate. What is wrong is named, and the password is not.
func TestBrokersThatAskWhoIsThere(t *testing.T) {
	issued, others := testenv.TestCerts(t), testenv.TestCerts(t)
	expired := issued.Issue(t, "expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	broker := testenv.StartKafka(t,
		testenv.KafkaListener{Name: "LOGIN", Pair: issued.Server, SASL: true},
		testenv.KafkaListener{Name: "MUTUAL", Pair: issued.Server, ClientCA: issued.CAFile},
		testenv.KafkaListener{Name: "EXPIRED", Pair: expired, SASL: true},
	)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(testenv.KafkaPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	trust := certs.ClientFiles{CA: issued.CAFile}
	login := Access{TLS: true, Files: trust, Mechanism: ScramSHA256, Username: testenv.KafkaUser,
		Password: testenv.KafkaPassword}
	with := func(change func(*Access)) Access {
		a := login
		change(&a)
		return a
	}
	const ok = ""
	for _, c := range []struct {
		name, listener string
		access         Access
		problem        string
	}{
		{"SCRAM-SHA-256", "LOGIN", login, ok},
		{"SCRAM-SHA-512", "LOGIN", with(func(a *Access) { a.Mechanism = ScramSHA512 }), ok},
		{"PLAIN, with the password in a file", "LOGIN",
			with(func(a *Access) { a.Mechanism, a.Password, a.PasswordFile = Plain, "", file }), ok},
		{"a certificate", "MUTUAL", Access{TLS: true,
			Files: certs.ClientFiles{CA: issued.CAFile, Cert: issued.Client.CertFile, Key: issued.Client.KeyFile}}, ok},
		{"a wrong password by SCRAM", "LOGIN", with(func(a *Access) { a.Password = "wrong-secret" }),
			"refuses the user name or the password"},
		{"a wrong password by PLAIN", "LOGIN", with(func(a *Access) { a.Mechanism, a.Password = Plain, "wrong-secret" }),
			"refuses the user name or the password"},
		{"an unknown user", "LOGIN", with(func(a *Access) { a.Username = "nobody" }),
			"refuses the user name or the password"},
		{"a broker of another authority", "LOGIN", with(func(a *Access) { a.Files.CA = others.CAFile }),
			"has a certificate of an unknown authority"},
		{"a broker whose certificate has expired", "EXPIRED", login,
			"has a certificate that has expired or is not valid yet"},
		{"a broker with another name", "LOGIN", with(func(a *Access) { a.Files.ServerName = "elsewhere" }),
			"has a certificate that is not for it"},
		{"no certificate", "MUTUAL", Access{TLS: true, Files: trust},
			"refuses the certificate of this program, or misses one"},
		{"no TLS where it is expected", "MUTUAL", Access{}, "does not answer"}, // the error asks whether TLS is meant
		{"TLS to a broker without it", "", Access{TLS: true, Files: trust},
			"ends connections at once, as it does where TLS or a login is missing or not expected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			topic := newTopic(broker)
			topic.Access = c.access
			if c.listener != "" {
				topic.Brokers = []string{broker.Addrs[c.listener]}
			}
			if c.problem == ok {
				passes(t, topic)
				return
			}
			p, err := NewPublisher(topic, time.Second, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for what, err := range map[string]error{"EnsureTopic": p.EnsureTopic(t.Context()), "Ping": p.Ping(t.Context())} {
				if err == nil || Problem(err) != c.problem || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s: %v: the broker %s, want %s", what, err, Problem(err), c.problem)
				}
			}
			if err := p.Publish(t.Context(), []notify.Message{message("u", "x")})[0]; err == nil {
				t.Error("a message was published")
			}
		})
	}
}

// passes publishes a message and consumes it.
func passes(t *testing.T, topic Topic) {
	t.Helper()
	p := newPublisher(t, topic, 20*time.Second)
	if err := p.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Publish(t.Context(), []notify.Message{message("u", "x")})[0]; err != nil {
		t.Fatal(err)
	}
	c := consume(t, topic, "", nil)
	testenv.Eventually(t, 30*time.Second, "the message is consumed", func() string { return c.lacks("x") })
	c.stop()
}

// TestAFileThatCannotBeReadIsNamed: before anything is connected.
func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, a := range map[string]Access{
		"/no/ca.pem":           {TLS: true, Files: certs.ClientFiles{CA: "/no/ca.pem"}},
		"no certificate in it": {TLS: true, Files: certs.ClientFiles{CA: empty}},
		"/no/key.pem":          {TLS: true, Files: certs.ClientFiles{Cert: empty, Key: "/no/key.pem"}},
		"/no/password":         {Mechanism: Plain, Username: "u", PasswordFile: "/no/password"},
		"larger than 1 MiB":    {Mechanism: Plain, Username: "u", PasswordFile: "/dev/zero"},
		"it is empty":          {Mechanism: Plain, Username: "u", PasswordFile: empty},
	} {
		if p, err := NewPublisher(Topic{Access: a}, time.Second, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
			p.Close()
		}
	}
}
