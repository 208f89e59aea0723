package testenv

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const dynamoStartLimit = 60 * time.Second

// DynamoTable returns the URL of a table for limits at an endpoint such as a [DynamoServer]'s, or a
// proxy's before it. The credentials that the server wants, and does not look at, are those of
// [DynamoCredentials].
func DynamoTable(endpoint, table string) string {
	return "dynamodb://" + table + "?region=eu-central-1&endpoint=" + url.QueryEscape(endpoint)
}

// DynamoCredentials are the variables of the environment that log in to DynamoDB Local. They name
// files that are not there, so that no file of the user who runs the tests is read.
func DynamoCredentials() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test-secret", "AWS_SESSION_TOKEN=",
		"AWS_CONFIG_FILE=/nonexistent", "AWS_SHARED_CREDENTIALS_FILE=/nonexistent", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// A DynamoServer is DynamoDB Local, running. Its methods may be called from any goroutine, except
// Restart, which ends the test when it fails.
type DynamoServer struct {
	Addr string // host:port
	URL  string // the endpoint

	tb     TB
	shared bool
	server *dynamoServer
}

type dynamoServer struct {
	dir    string
	binary string
	listener
}

// A DynamoStorage says where DynamoDB Local keeps its tables.
type DynamoStorage string

// InMemory is much faster, and InFiles survives a crash of the server.
const (
	InMemory DynamoStorage = "-inMemory"
	InFiles  DynamoStorage = "-dbPath"
)

// StartDynamoDB starts DynamoDB Local for this test, without tables, and waits until it answers.
func StartDynamoDB(tb TB, storage DynamoStorage) *DynamoServer {
	tb.Helper()
	s, err := newDynamoServer(Require(tb, DynamoDB), storage)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the log of %s ends with:\n%s", s.name(), tail(s.log, 60))
		}
		if err := s.remove(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return s.held(tb, false)
}

// sharedDynamo is the server that tests share.
var sharedDynamo struct {
	mu     sync.Mutex
	server *dynamoServer
	err    error
}

// SharedDynamoDB returns the one server that all tests of this process can have: they get along by
// tables of their own, in memory. It runs until the process ends.
func SharedDynamoDB(tb TB) *DynamoServer {
	tb.Helper()
	binary := Require(tb, DynamoDB)
	d := &sharedDynamo
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil && d.err == nil {
		d.server, d.err = newDynamoServer(binary, InMemory)
	}
	if d.err != nil {
		tb.Fatalf("testenv: %v", d.err)
	}
	return d.server.held(tb, true)
}

func (s *dynamoServer) held(tb TB, shared bool) *DynamoServer {
	ran(tb, DynamoDB, s.version())
	return &DynamoServer{Addr: s.addr, URL: "http://" + s.addr, tb: tb, shared: shared, server: s}
}

// version is in the name of the server's file.
func (s *dynamoServer) version() string {
	jar := newest(filepath.Join(filepath.Dir(s.binary), "lib", "DynamoDBLocal-*.jar"))
	_, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(jar), ".jar"), "-")
	return version
}

func newDynamoServer(binary string, storage DynamoStorage) (*dynamoServer, error) {
	dir, err := newServerDir("dynamodb", account{})
	if err != nil {
		return nil, err
	}
	s := &dynamoServer{dir: dir, binary: binary}
	s.listener = listener{
		title: "DynamoDB Local", log: filepath.Join(dir, "server.log"), ready: "DbPath:", within: dynamoStartLimit,
		command: func(port int) *exec.Cmd {
			args := []string{"com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-sharedDb", "-disableTelemetry",
				"-port", strconv.Itoa(port), string(storage)}
			if storage == InFiles {
				args = append(args, dir)
			}
			cmd := exec.Command(binary, args...)
			cmd.Dir = dir
			return cmd
		},
		answers: s.ask,
		kill:    (*process).killTree,
	}
	if err := s.launch(); err != nil {
		err = fmt.Errorf("%w\nits log ends with:\n%s", err, tail(s.log, 60))
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// ask wants an answer of DynamoDB, which is an error, as nobody has logged in.
func (s *dynamoServer) ask() error {
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + s.addr)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get("X-Amzn-Requestid") == "" {
		return fmt.Errorf("what answers on %s with %s is no DynamoDB", s.addr, resp.Status)
	}
	return nil
}

// remove ends the server for good and removes what it kept.
func (s *dynamoServer) remove() error {
	var err error
	if proc := s.process(); proc != nil {
		err = s.kill(proc)
	}
	if s.release != nil {
		s.release()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (d *DynamoServer) check(err error) {
	d.tb.Helper()
	if d.shared {
		d.tb.Errorf("testenv: other tests use this server; start one for this test")
	}
	if err != nil {
		d.tb.Errorf("testenv: %v", err)
	}
}

// Kill ends the server like a crash (SIGKILL) and waits until it is gone. InFiles, what it has confirmed
// is there after Restart.
func (d *DynamoServer) Kill() { d.check(d.server.process().killTree()) }

// Pause freezes the server (SIGSTOP): connections stay open and nothing answers.
func (d *DynamoServer) Pause() { d.check(d.server.process().pauseTree()) }

// Resume lets a paused server go on.
func (d *DynamoServer) Resume() { d.check(d.server.process().resumeTree()) }

// Restart kills the server if it still runs and starts it again on the same port, InFiles with the same
// tables.
func (d *DynamoServer) Restart() {
	d.tb.Helper()
	if err := d.server.restart(); err != nil {
		d.tb.Fatalf("testenv: %v", err)
	}
}
