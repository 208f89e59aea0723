package notify

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// ready returns what the program says about its readiness.
func (p *program) ready(t *testing.T) string {
	t.Helper()
	resp, err := client.Get(p.url + "/readyz?verbose")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return resp.Status + "\n" + string(body)
}

// TestKafkaWithALogin: both programs talk TLS to Kafka and log in. When it refuses their password
// after a restart, readiness and the log say so, and a password that is put right is used without
// a restart of the programs.
func TestKafkaWithALogin(t *testing.T) {
	t.Parallel() // it waits for Kafka most of the time
	const wrong, refusal = "not-the-s3cret", "refuses the user name or the password"
	certs := testenv.TestCerts(t)
	s := newStack(t, modes[0])
	s.kafka = testenv.StartKafka(t, testenv.KafkaListener{Name: "LOGIN", Pair: certs.Server, SASL: true})
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(testenv.KafkaPassword)
	login := []string{"--kafka-tls", "--kafka-tls-ca", certs.CAFile, "--kafka-sasl", "scram-sha-512", "--kafka-username",
		testenv.KafkaUser}
	s.kafka.Addr = s.kafka.Addrs["LOGIN"]
	byFile := append([]string{"--kafka-password-file", file}, login...)
	s.start(1, byFile...)
	g, sender := s.gateways[0], s.sender(byFile...)
	g.configure(t, "u", 100, 60)
	g.send("u", "over TLS").expect(t, 200, nil)
	testenv.Eventually(t, 30*time.Second, "the message is sent", func() string {
		if sent(sender, "u", "over TLS") != 1 {
			return "it is not"
		}
		return ""
	})

	write(wrong)
	s.kafka.Restart()
	for _, p := range []*program{g, sender} {
		testenv.Eventually(t, 60*time.Second, "readiness says that the password is refused", func() string {
			if got := p.ready(t); !strings.HasPrefix(got, "503") || !strings.Contains(got, refusal) {
				return got
			}
			return ""
		})
	}
	write(testenv.KafkaPassword)
	for _, p := range []*program{g, sender} {
		testenv.Eventually(t, 60*time.Second, "the program is ready again", func() string {
			if got := p.ready(t); !strings.HasPrefix(got, "200") {
				return got
			}
			return ""
		})
		if log := p.Log(); !strings.Contains(log, refusal) || strings.Contains(log, wrong) ||
			strings.Contains(log, testenv.KafkaPassword) {
			t.Errorf("the log does not say what was wrong, or shows a password:\n%s", log)
		}
	}

	env := []string{"NOTIFY_SENDER_KAFKA_PASSWORD=" + wrong}
	code, log, problem := testenv.RunProgram(t, senderProgram, env,
		append([]string{"--http", "", "--kafka", s.kafka.Addr, "--start-wait", "2s"}, login...)...)
	if code != 2 || !strings.Contains(problem, "SASL_AUTHENTICATION_FAILED") || strings.Contains(log+problem, wrong) {
		t.Errorf("with a wrong password the sender ends with %d:\n%s%s", code, log, problem)
	}
}
