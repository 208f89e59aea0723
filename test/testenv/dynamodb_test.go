package testenv

import (
	"net/http"
	"testing"
	"time"
)

// The server comes back at its address after a crash, and says what it is.
func TestDynamoDBComesBack(t *testing.T) {
	s := StartDynamoDB(t, InFiles)
	if s.server.version() == "" {
		t.Error("nobody knows its version")
	}
	answers := func() bool {
		client := http.Client{Timeout: 300 * time.Millisecond}
		defer client.CloseIdleConnections()
		resp, err := client.Get(s.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}
	s.Pause()
	if answers() {
		t.Error("a paused server answers")
	}
	s.Resume()
	s.Kill()
	if answers() {
		t.Error("a killed server answers")
	}
	s.Restart()
	if !answers() {
		t.Error("a server that was started again does not answer")
	}
}
