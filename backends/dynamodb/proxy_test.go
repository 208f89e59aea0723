package dynamodb

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A proxy passes calls on to DynamoDB, counts them and spoils some.
type proxy struct {
	URL      string
	upstream string

	mu    sync.Mutex
	calls []string // their operations, in order
	spoil func(op string, n int) fault
}

// A fault says how the proxy spoils a call. The zero fault lets the call pass.
type fault struct {
	before func()    // runs first
	answer string    // of DynamoDB, in place of the call
	status int       // of this answer; 0 is 400, an error
	drop   direction // what is lost, with the connection
	hang   bool      // nobody says so: the connection stays, silent
}

type direction int

const (
	nothing direction = iota
	request           // DynamoDB never sees it
	reply             // it is carried out
)

// startProxy is a proxy before a server.
func startProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	p := &proxy{upstream: upstream, spoil: func(string, int) fault { return fault{} }}
	s := httptest.NewServer(p)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	p.URL = s.URL
	return p
}

// with sets what spoils calls from now on: f gets the operation and how many calls there were since,
// from 1.
func (p *proxy) with(f func(op string, n int) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls, p.spoil = nil, f
}

// count begins to count anew, and spoils nothing any more.
func (p *proxy) count() { p.with(func(string, int) fault { return fault{} }) }

// counted are the operations since, such as "2 UpdateItem, 1 GetItem".
func (p *proxy) counted() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := map[string]int{}
	for _, op := range p.calls {
		n[op]++
	}
	var texts []string
	for _, op := range []string{"UpdateItem", "TransactWriteItems", "GetItem", "BatchGetItem", "BatchWriteItem", "Query"} {
		if n[op] > 0 {
			texts = append(texts, fmt.Sprint(n[op], " ", op))
		}
	}
	return strings.Join(texts, ", ")
}

// ServeHTTP passes one call on.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	p.mu.Lock()
	p.calls = append(p.calls, op)
	f := p.spoil(op, len(p.calls))
	p.mu.Unlock()
	if f.before != nil {
		f.before()
	}
	if f.answer != "" {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(cmp.Or(f.status, http.StatusBadRequest))
		_, _ = io.WriteString(w, f.answer)
		return
	}
	if f.drop == request {
		lose(r, f.hang)
	}
	out, err := http.NewRequest(r.Method, p.upstream, bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if f.drop == reply {
		lose(r, f.hang)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer)
}

// lose ends the connection, at once or when the client has.
func lose(r *http.Request, hang bool) {
	if hang {
		<-r.Context().Done()
	}
	panic(http.ErrAbortHandler)
}

// refusal is an error of DynamoDB.
func refusal(name string) fault {
	return fault{answer: fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"of a test"}`, name)}
}

// cancelled is the error of a transaction with these reasons.
func cancelled(codes ...string) fault {
	var reasons []string
	for _, c := range codes {
		reasons = append(reasons, fmt.Sprintf(`{"Code":%q,"Message":"of a test"}`, c))
	}
	return fault{answer: `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"of a ` +
		`test","CancellationReasons":[` + strings.Join(reasons, ",") + `]}`}
}
