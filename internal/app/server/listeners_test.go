package server

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestIdleConnectionsAreProbed after --grpc-keepalive, which finds clients whose hosts are gone.
func TestIdleConnectionsAreProbed(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		r := startServe(t, append(transport, "--example", "--grpc-keepalive", "1s")...)
		conn, err := net.Dial("tcp", r.GRPC)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(4 * time.Second)) // without the setting it takes 5 s or more
		began, fr := time.Now(), http2.NewFramer(conn, conn)
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		_ = fr.WriteSettings()
		for {
			frame, err := fr.ReadFrame()
			if err != nil {
				t.Fatalf("no PING: %v after %v", err, time.Since(began))
			}
			if _, ping := frame.(*http2.PingFrame); ping && time.Since(began) > 500*time.Millisecond {
				return
			}
		}
	})
}

// TestSocketsHaveTheirMode: --socket-mode says who may connect.
func TestSocketsHaveTheirMode(t *testing.T) {
	dir := t.TempDir()
	addresses := map[string]string{"--grpc": "grpc", "--services": "services", "--http": "http", "--debug": "debug"}
	for text, mode := range map[string]os.FileMode{"0600": 0o600, "0666": 0o666} {
		args := []string{"--example", "--socket-mode", text}
		for flag, name := range addresses {
			args = append(args, flag, "unix:"+filepath.Join(dir, name))
		}
		r := startServe(t, args...)
		for _, name := range addresses {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != mode {
				t.Errorf("--socket-mode %s: %s has %v, %v", text, name, info, err)
			}
		}
		r.Stop()
		r.Ends(20 * time.Second)
	}
}
