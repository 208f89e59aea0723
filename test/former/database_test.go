package former

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// policyCheck has each build follow what the other sets.
type policyCheck struct{}

func (policyCheck) phase(p *pair, number int) {
	for i, b := range p.builds {
		name, limit := fmt.Sprintf("u%d-%d", number, i), 100*(number+1)+i
		code, out, errOut := testenv.RunProgram(p.T, b.program, nil, "policy", "set", "user:"+name, "--limit",
			fmt.Sprint(limit), "--window", "2400h", "--algorithm", "fixed_window", "--policies", policiesOf(b))
		if code != 0 {
			p.Fatalf("%s: policy set: %d %s%s", b.name, code, out, errOut)
		}
		for _, r := range p.running {
			testenv.Eventually(p.T, callLimit, r.name+" follows a policy of "+b.name, func() string {
				if a := r.must(hits(0, "policy", name)); a.remaining != int64(limit) {
					return fmt.Sprintf("%d left, want %d", a.remaining, limit)
				}
				return ""
			})
		}
	}
}

func (policyCheck) end(*pair) {}

// policiesOf returns the URL of the policies of a build.
func policiesOf(b *build) string { return b.flags[len(b.flags)-1] }

// slotCheck has events assigned by both builds.
type slotCheck struct {
	mu    sync.Mutex
	slots map[string]string // by event
}

const (
	slotsEach   = 5 // in each window
	slotsWindow = 4 * time.Second
	events      = 24 // in each phase
)

func (c *slotCheck) phase(p *pair, number int) {
	inParallel(events, func(i int) {
		event := fmt.Sprintf("event-%d-%d", number, i)
		for _, b := range p.running { // each of them has the same answer
			at, err := b.slot(event)
			c.mu.Lock()
			if before := c.slots[event]; err != nil || before != "" && at != before {
				p.Errorf("%s of phase %d: %s has slot %q, and before %q: %v", b.name, number, event, at, before, err)
			}
			c.slots[event] = at
			c.mu.Unlock()
		}
	})
}

func (c *slotCheck) end(p *pair) {
	inWindow := map[int64]int{}
	for event, at := range c.slots {
		again, err := p.any().slot(event)
		when, wrong := time.Parse(time.RFC3339, at)
		if err != nil || wrong != nil || again != at {
			p.Errorf("%s has slot %q, and at the end %q: %v, %v", event, at, again, err, wrong)
		}
		window := when.UnixNano() / int64(slotsWindow)
		if inWindow[window]++; inWindow[window] > slotsEach {
			p.Errorf("the window of %v has %d slots, more than %d", when, inWindow[window], slotsEach)
		}
	}
	if len(c.slots) != events*len(phases) {
		p.Errorf("%d events have slots, want %d", len(c.slots), events*len(phases))
	}
}

// slot asks for the slot of an event.
func (b *build) slot(event string) (at string, err error) {
	client := http.Client{Timeout: callLimit}
	resp, err := client.Post("http://"+b.server.HTTP+"/api/v1/slots", "application/json", strings.NewReader(
		`{"eventId":"`+event+`","configName":"default","requestedTime":"2025-06-01T12:00:00Z"}`))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s, %w", resp.Status, text, err)
	}
	var answer struct {
		ScheduledTime string `json:"scheduledTime"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.ScheduledTime == "" {
		return "", fmt.Errorf("%s: %v", text, err)
	}
	return answer.ScheduledTime, nil
}
