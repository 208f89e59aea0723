package notify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestKilledSender: another sender takes over what a killed one had, within the time that
// docs/notify.md gives, and handles again at most a moment of its messages.
func TestKilledSender(t *testing.T) {
	longForm(t)
	const users, pause = 24, 20 * time.Millisecond
	s := newStack(t, modes[1]).start(1, "--topic-partitions", "8")
	for u := range users {
		s.gateways[0].configure(t, fmt.Sprint("u", u), 100_000, 60)
	}
	dies, stays := s.sender(), s.sender()
	n := 0
	send := func() string {
		text := fmt.Sprint("m", n)
		s.gateways[0].send(fmt.Sprint("u", n%users), text).expect(t, 200, nil)
		n++
		time.Sleep(pause)
		return text
	}
	for both := false; !both; send() { // the group has settled
		both = strings.Count(dies.Log(), "SMS SENT") > 20 && strings.Count(stays.Log(), "SMS SENT") > 20
	}
	dies.Kill()
	killed := time.Now()
	first := n
	for time.Since(killed) < 15*time.Second {
		send()
	}
	longest := time.Duration(0)
	testenv.Eventually(t, 30*time.Second, "all messages are sent", func() string {
		log := stays.Log()
		for i := first; i < n; i++ {
			if !strings.Contains(log, fmt.Sprintf(" message=m%d ", i)) {
				return fmt.Sprint("m", i)
			}
		}
		return ""
	})
	repeated := 0
	for line := range strings.Lines(dies.Log()) {
		if _, rest, ok := strings.Cut(line, "SMS SENT"); ok && strings.Contains(stays.Log(), rest) {
			repeated++
		}
	}
	for line := range strings.Lines(stays.Log()) { // a message is sent at most so long after the kill
		var at, text string
		for word := range strings.FieldsSeq(line) {
			if v, ok := strings.CutPrefix(word, "time="); ok {
				at = v
			}
			if v, ok := strings.CutPrefix(word, "message="); ok {
				text = v
			}
		}
		var i int
		if _, err := fmt.Sscanf(text, "m%d", &i); err != nil || i < first {
			continue
		}
		when, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, when.Sub(killed)-time.Duration(i-first)*pause)
	}
	t.Logf("%d messages were repeated, one waited for %v", repeated, longest.Round(time.Millisecond))
	// A quarter of a second of messages and one of each partition, and as much for a busy machine.
	if most := 2 * (int(250*time.Millisecond/pause) + 8); repeated > most {
		t.Errorf("more than %d messages were repeated", most)
	}
	if longest > 14*time.Second {
		t.Errorf("a message waited for %v, not for about 10 s", longest)
	}
}
