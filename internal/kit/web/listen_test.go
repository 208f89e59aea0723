package web

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenReplacesOnlyStaleSockets(t *testing.T) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "hg") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")

	l, err := Listen(ctx, "grpc", "unix:"+path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(ctx, "grpc", "unix:"+path, 0); err == nil ||
		!strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("second listener: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close() // as kill -9 leaves it
	l, err = Listen(ctx, "grpc", "unix:"+path, 0)
	if err != nil {
		t.Fatalf("a stale socket is in the way: %v", err)
	}
	_ = l.Close()
	l, err = Listen(ctx, "grpc", "unix:"+path, 0o602)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o602 {
		t.Errorf("mode of the socket: %v, %v", info, err)
	}
	_ = l.Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(ctx, "grpc", "unix:"+path, 0); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the way: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("the file was touched: %q, %v", data, err)
	}

	tcp, err := Listen(ctx, "http", "127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if _, err := Listen(ctx, "http", tcp.Addr().String(), 0); err == nil || !strings.Contains(err.Error(), "--http") ||
		!strings.Contains(err.Error(), "stop it or choose another") {
		t.Errorf("port in use: %v", err)
	}
}
