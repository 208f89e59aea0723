package testenv

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	kafkaStartLimit = 60 * time.Second
	kafkaReady      = "Kafka Server started"
	kafkaCluster    = "MkU3OEVBNTcwNTJENDM2Qk" // its id: any 22 characters of base64 do
)

// kafkaSettings are those of a broker that is its own controller. Without the last two it
// takes a quarter of a minute to come back after a crash, as it waits for itself to be gone.
const kafkaSettings = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d%[4]s
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d%[4]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT%[5]s
inter.broker.listener.name=PLAINTEXT
log.dirs=%[3]s/log
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=2097152
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=300
`

// A KafkaListener is one more address of a broker, which talks TLS.
type KafkaListener struct {
	Name     string // upper-case letters
	Pair     Pair   // what it shows
	ClientCA string // file with who may vouch for clients, which must show a certificate; empty: they need none
	SASL     bool   // clients must log in as KafkaUser, with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
}

// The user of listeners with SASL.
const (
	KafkaUser     = "app"
	KafkaPassword = "apppw-of-kafka"
)

// scramUser are the arguments that make the user for SCRAM.
const scramUser = " --add-scram 'SCRAM-SHA-256=[name=" + KafkaUser + ",password=" + KafkaPassword + "]'" +
	" --add-scram 'SCRAM-SHA-512=[name=" + KafkaUser + ",password=" + KafkaPassword + "]'"

// secure returns the settings of a listener at a port, and writes its files.
func (l KafkaListener) secure(dir string, port int) (listeners, settings string, err error) {
	var store []byte
	for _, file := range []string{l.Pair.KeyFile, l.Pair.CertFile} {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", "", err
		}
		store = append(store, data...)
	}
	keystore := filepath.Join(dir, l.Name+".pem")
	if err := os.WriteFile(keystore, store, 0o600); err != nil {
		return "", "", err
	}
	prefix := "listener.name." + strings.ToLower(l.Name) + "."
	settings = prefix + "ssl.keystore.type=PEM\n" + prefix + "ssl.keystore.location=" + keystore + "\n"
	if l.ClientCA != "" {
		settings += prefix + "ssl.client.auth=required\n" + prefix + "ssl.truststore.type=PEM\n" + prefix +
			"ssl.truststore.location=" + l.ClientCA + "\n"
	}
	if l.SASL {
		const plain = "org.apache.kafka.common.security.plain.PlainLoginModule required user_" + KafkaUser + "=\"" +
			KafkaPassword + "\";"
		const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		settings += prefix + "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n" + prefix +
			"plain.sasl.jaas.config=" + plain + "\n" +
			prefix + "scram-sha-256.sasl.jaas.config=" + scram + "\n" + prefix + "scram-sha-512.sasl.jaas.config=" + scram + "\n"
	}
	return fmt.Sprintf(",%s://127.0.0.1:%d", l.Name, port), settings, nil
}

// protocol is what the listener talks, as Kafka calls it.
func (l KafkaListener) protocol() string {
	if l.SASL {
		return "SASL_SSL"
	}
	return "SSL"
}

// KafkaBroker is one running broker. Its methods may be called from any goroutine, except
// Restart, which ends the test when it fails.
type KafkaBroker struct {
	Addr  string            // host:port
	Addrs map[string]string // of its other listeners, by their names

	tb     TB
	shared bool
	server *kafkaServer
}

type kafkaServer struct {
	dir    string
	binary string
	others map[KafkaListener]int // with their ports
	listener
}

// StartKafka starts a broker for this test, without topics, and waits until it listens.
func StartKafka(tb TB, more ...KafkaListener) *KafkaBroker {
	tb.Helper()
	binary := Require(tb, Kafka)
	others := map[KafkaListener]int{}
	for _, l := range more {
		others[l] = FreePort(tb)
	}
	s, err := newKafkaServer(binary, others)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the log of %s ends with:\n%s", s.name(), tail(s.log, 10))
		}
		if err := s.remove(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return s.held(tb, false)
}

// sharedKafka is the broker that tests share.
var sharedKafka struct {
	mu     sync.Mutex
	server *kafkaServer
	err    error
}

// SharedKafka returns the one broker that all tests of this process can have: they get along
// by topics of their own. It runs until the process ends.
func SharedKafka(tb TB) *KafkaBroker {
	tb.Helper()
	binary := Require(tb, Kafka)
	k := &sharedKafka
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.server == nil && k.err == nil {
		k.server, k.err = newKafkaServer(binary, nil)
	}
	if k.err != nil {
		tb.Fatalf("testenv: %v", k.err)
	}
	return k.server.held(tb, true)
}

func (s *kafkaServer) held(tb TB, shared bool) *KafkaBroker {
	ran(tb, Kafka, s.version())
	addrs := map[string]string{}
	for l, port := range s.others {
		addrs[l.Name] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return &KafkaBroker{Addr: s.addr, Addrs: addrs, tb: tb, shared: shared, server: s}
}

// version is in the names of the broker's files.
func (s *kafkaServer) version() string {
	jar := newest(filepath.Join(filepath.Dir(s.binary), "lib", "kafka-server-common-*.jar"))
	_, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(jar), ".jar"), "common-")
	return version
}

func newKafkaServer(binary string, others map[KafkaListener]int) (*kafkaServer, error) {
	dir, err := newServerDir("kafka", account{})
	if err != nil {
		return nil, err
	}
	s := &kafkaServer{dir: dir, binary: binary, others: others}
	var listeners, protocols, secure string
	for l, port := range others {
		address, lines, err := l.secure(dir, port)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		listeners, protocols, secure = listeners+address, protocols+","+l.Name+":"+l.protocol(), secure+lines
	}
	settings := filepath.Join(dir, "server.properties")
	s.listener = listener{
		title: "Kafka", log: filepath.Join(dir, "server.log"), ready: kafkaReady, within: kafkaStartLimit,
		command: func(port int) *exec.Cmd {
			// The first start, on whatever port, prepares the directory.
			format := fmt.Sprintf(
				`[ -e %[1]s/log/meta.properties ] || %[2]s kafka.tools.StorageTool format -t %[3]s -c %[4]s%[5]s || exit
exec %[2]s kafka.Kafka %[4]s`, dir, binary, kafkaCluster, settings, scramUser)
			text := fmt.Sprintf(kafkaSettings, port, port+busOffset, dir, listeners, protocols) + secure
			// What goes wrong here shows when the broker does not start.
			_ = os.WriteFile(settings, []byte(text), 0o600)
			return exec.Command("/bin/sh", "-c", format)
		},
		answers: s.dial,
		kill:    (*process).killTree,
	}
	if err := s.launch(); err != nil {
		err = fmt.Errorf("%w\nits log ends with:\n%s", err, tail(s.log, 20))
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *kafkaServer) dial() error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// remove ends the broker for good and removes what it kept.
func (s *kafkaServer) remove() error {
	var err error
	if proc := s.process(); proc != nil {
		err = s.kill(proc)
	}
	if s.release != nil {
		s.release()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (k *KafkaBroker) check(err error) {
	k.tb.Helper()
	if k.shared {
		k.tb.Errorf("testenv: other tests use this broker; start one for this test")
	}
	if err != nil {
		k.tb.Errorf("testenv: %v", err)
	}
}

// Kill ends the broker like a crash (SIGKILL) and waits until it is gone. What it has
// confirmed is there after Restart.
func (k *KafkaBroker) Kill() { k.check(k.server.process().killTree()) }

// Pause freezes the broker (SIGSTOP): connections stay open and nothing answers.
func (k *KafkaBroker) Pause() { k.check(k.server.process().pauseTree()) }

// Resume lets a paused broker go on.
func (k *KafkaBroker) Resume() { k.check(k.server.process().resumeTree()) }

// Restart kills the broker if it still runs and starts it again on the same port with the
// same data.
func (k *KafkaBroker) Restart() {
	k.tb.Helper()
	if err := k.server.restart(); err != nil {
		k.tb.Fatalf("testenv: %v", err)
	}
}
