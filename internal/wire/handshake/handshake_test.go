package handshake

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is what a test waits for what must happen.
const patience = 30 * time.Second

func certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// pipe returns a connection within bounds, and its other end.
func pipe(t *testing.T, b *Bounds) (*Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := b.Conn(nc)
	t.Cleanup(func() { _, _ = client.Close(), c.Close() })
	for _, nc := range []net.Conn{client, c} {
		_ = nc.SetDeadline(time.Now().Add(patience))
	}
	return c, client
}

// nothingKept fails the test if bounds are still in use.
func nothingKept(t *testing.T, b *Bounds) {
	t.Helper()
	if turns, used := len(b.turns), b.used.Load(); turns != 0 || used != 0 {
		t.Errorf("%d turns and %d bytes are still taken", turns, used)
	}
}

func TestHandshakesComputeInTurns(t *testing.T) {
	const turns = 2
	b, cert := newBounds(turns, 32<<20), certificate(t)
	var computing, most atomic.Int64
	server := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		n := computing.Add(1)
		defer computing.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		return cert, nil
	}}
	slow, client := pipe(t, b) // has no turn while it waits for its client
	if _, err := client.Write([]byte{22, 3, 1, 1, 0}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		_ = tls.Server(slow, server).Handshake()
		slow.Done()
	})
	var handshakes sync.WaitGroup
	for range 12 {
		c, client := pipe(t, b)
		tc := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
		handshakes.Go(func() {
			if err := tc.Handshake(); err != nil {
				t.Error("client:", err)
			}
			got := make([]byte, 4)
			if _, err := io.ReadFull(tc, got); err != nil || string(got) != "done" {
				t.Errorf("%q, %v after the handshake", got, err)
			}
		})
		handshakes.Go(func() {
			tc := tls.Server(c, server)
			if err := tc.Handshake(); err != nil {
				t.Error("server:", err)
			}
			c.Done()
			if _, err := tc.Write([]byte("done")); err != nil {
				t.Error(err)
			}
		})
	}
	handshakes.Wait()
	_ = slow.Close()
	all.Wait()
	if n := most.Load(); n > turns {
		t.Errorf("%d handshakes computed at a time, want %d at most", n, turns)
	}
	nothingKept(t, b)
}

func TestClosedConnectionsWaitForNoTurn(t *testing.T) {
	b := newBounds(1, 32<<20)
	first, client := pipe(t, b)
	if _, err := client.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err != nil { // it has the turn now
		t.Fatal(err)
	}
	second, client := pipe(t, b)
	if _, err := client.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		_, err := second.Read(make([]byte, 1))
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("the second has a turn too (%v)", err)
	case <-time.After(20 * time.Millisecond):
	}
	_ = second.Close()
	select {
	case err := <-result:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v, want %v", err, net.ErrClosed)
		}
	case <-time.After(patience):
		t.Fatal("the second still waits")
	}
	second.Done()
	first.Done()
	nothingKept(t, b)
}

func TestLargeHandshakesShareTheirMemory(t *testing.T) {
	b := newBounds(1, 2*free)
	// receive reads n bytes, as of a handshake that does not end.
	receive := func(n int) (*Conn, error) {
		c, client := pipe(t, b)
		go func() { _, _ = client.Write(make([]byte, n)) }()
		var got bytes.Buffer
		for part := make([]byte, 1000); got.Len() < n; {
			k, err := c.Read(part)
			if err != nil {
				c.Done()
				return nil, err
			}
			got.Write(part[:k])
		}
		c.giveBack()
		return c, nil
	}
	var held []*Conn
	for _, step := range []struct {
		bytes int
		fits  bool
	}{{3 * free, true}, {2 * free, false}, {free, true}, {free, true}} {
		c, err := receive(step.bytes)
		if step.fits != (err == nil) || err != nil && !errors.Is(err, errTooLarge) {
			t.Fatalf("%d bytes: %v", step.bytes, err)
		}
		if c != nil {
			held = append(held, c)
		}
	}
	held[0].Done()
	c, err := receive(2 * free)
	if err != nil {
		t.Fatalf("after a large one has ended: %v", err)
	}
	for _, c := range append(held[1:], c) {
		c.Done()
	}
	nothingKept(t, b)
}
