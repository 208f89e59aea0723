// Package notify runs the programs of the notification gateway against real servers:
// PostgreSQL, Kafka and Redis.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/test/testenv"
)

var gatewayProgram, senderProgram, tryProgram string

func TestMain(m *testing.M) {
	testenv.Main(m, func(root, dir string) (err error) {
		var err2, err3 error
		tryProgram, err3 = testenv.Build(root, dir, "./test/notify/try")
		gatewayProgram, err = testenv.Build(root, dir, "./cmd/notify-gateway")
		senderProgram, err2 = testenv.Build(root, dir, "./cmd/notify-sender")
		return errors.Join(err, err2, err3)
	})
}

// A program is a running notify-gateway or notify-sender.
type program struct {
	*testenv.Program
	url string
}

var serving = regexp.MustCompile(`msg=serving http=(\S+)(?: debug=(\S+))?`)

func startProgram(t testing.TB, path string, flags ...string) *program {
	t.Helper()
	p := &program{Program: testenv.StartProgram(t, path, nil,
		append([]string{"--http", "127.0.0.1:0", "--start-wait", "30s"}, flags...)...)}
	testenv.Eventually(t, 40*time.Second, "start "+filepath.Base(path), func() string {
		m := serving.FindStringSubmatch(p.Log())
		switch {
		case p.Exited():
			t.Fatalf("%s has ended:\n%s", filepath.Base(path), p.Log())
		case m == nil:
			return "it does not serve"
		}
		p.url = "http://" + m[1]
		return ""
	})
	return p
}

// A stack is everything that a mode of the gateway needs, with an empty database and a topic
// of its own.
type stack struct {
	t        testing.TB
	db       *testenv.Database
	database string
	kafka    *testenv.KafkaBroker
	topic    string
	redis    string // URL; empty: none
	outbox   bool
	gateways []*program
}

// A mode is a way to run the gateway.
type mode struct {
	name          string
	redis, outbox bool
}

var modes = []mode{{"direct", false, false}, {"outbox", false, true}, {"redis", true, false},
	{"redis and outbox", true, true}}

// newStack uses the servers that all tests share.
func newStack(t testing.TB, m mode) *stack {
	t.Helper()
	s := &stack{t: t, kafka: testenv.SharedKafka(t), db: testenv.SharedDatabase(t, testenv.Postgres), outbox: m.outbox}
	s.database = s.db.CreateDatabase("notify")
	s.topic = fmt.Sprintf("sms-%d", time.Now().UnixNano())
	if m.redis {
		s.redis = testenv.StartRedis(t).URL()
	}
	return s
}

// start starts gateways.
func (s *stack) start(n int, flags ...string) *stack {
	s.t.Helper()
	for range n {
		s.gateways = append(s.gateways, s.gateway(flags...))
	}
	return s
}

func (s *stack) gateway(flags ...string) *program {
	s.t.Helper()
	args := []string{"--database", s.database, "--kafka", s.kafka.Addr, "--topic", s.topic, "--debug", "127.0.0.1:0"}
	if s.redis != "" {
		args = append(args, "--redis", s.redis)
	}
	if s.outbox {
		args = append(args, "--delivery", "outbox")
	}
	return startProgram(s.t, gatewayProgram, append(args, flags...)...)
}

func (s *stack) sender(flags ...string) *program {
	s.t.Helper()
	return startProgram(s.t, senderProgram, append([]string{"--kafka", s.kafka.Addr, "--topic", s.topic}, flags...)...)
}

// client has connections for all that a test sends at the same time.
var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 128,
	IdleConnTimeout: 5 * time.Second}}

// An answer is what a gateway answers; status 0: nothing.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func (p *program) post(path, body string) answer {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, header: resp.Header}
	if err != nil || json.Unmarshal(data, &a.body) != nil {
		return answer{}
	}
	return a
}

func encode(v any) string {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(v)
	return b.String()
}

func (p *program) configure(t testing.TB, user string, limit, minutes int) answer {
	t.Helper()
	a := p.post("/api/config", encode(map[string]any{"userId": user, "rateLimit": limit, "timeWindow": minutes}))
	if a.status != 200 {
		t.Fatalf("configure %s: %+v", user, a)
	}
	return a
}

func (p *program) send(user, text string) answer {
	return p.post("/api/send", encode(map[string]any{"userId": user, "message": text}))
}

func (a answer) expect(t testing.TB, status int, fields map[string]any) {
	t.Helper()
	wrong := a.status != status
	for k, v := range fields {
		wrong = wrong || fmt.Sprint(a.body[k]) != fmt.Sprint(v)
	}
	if wrong {
		t.Errorf("got %d %v, want %d %v", a.status, a.body, status, fields)
	}
}

// query returns what a statement of one value says.
func (s *stack) query(text string) string {
	s.t.Helper()
	return strings.TrimSpace(
		s.db.ExecOn(s.database[strings.LastIndex(s.database, "/")+1:strings.Index(s.database, "?")], text))
}

// consumed returns the messages of the topic once the wanted texts are among them, or after a
// while without them.
func (s *stack) consumed(wanted map[string]bool, within time.Duration) (list []notify.Message) {
	s.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(s.kafka.Addr), kgo.ConsumeTopics(s.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	missing := map[string]bool{}
	for text := range wanted {
		missing[text] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		wait := 500 * time.Millisecond // for what comes twice
		if len(missing) > 0 {
			wait = within
		}
		one, stop := context.WithTimeout(ctx, wait)
		fetches := c.PollFetches(one)
		ended := one.Err() != nil
		stop()
		fetches.EachRecord(func(r *kgo.Record) {
			m, err := notify.Decode(r.Value)
			if err != nil || string(r.Key) != m.UserID || m.ID == "" {
				s.t.Errorf("the topic has %q: %v", r.Value, err)
			}
			delete(missing, m.Text)
			list = append(list, m)
		})
		if ended {
			return list
		}
	}
}

// together runs f n times at the same time.
func together(n int, f func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { f(i) })
	}
	wait.Wait()
}
