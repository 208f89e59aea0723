package slots

import (
	"cmp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/slots/plan"
)

// checkRequest fills in defaults and returns the requested time in
// microseconds, rounded up so that no slot is before it.
func (s *Scheduler) checkRequest(r *Request) (us int64, err error) {
	if err := checkName("eventId", r.EventID, MaxEventID); err != nil {
		return 0, err
	}
	r.ConfigName = cmp.Or(r.ConfigName, s.settings.DefaultConfig)
	if err := checkName("configName", r.ConfigName, MaxConfigName); err != nil {
		return 0, err
	}
	if r.At.Before(minTime) || !r.At.Before(maxTime) {
		return 0, BadField("requestedTime", "is outside the years 1900 to 9000")
	}
	us = r.At.UnixMicro()
	if r.At.Nanosecond()%1000 != 0 {
		us++
	}
	now := s.settings.Now()
	if past := s.settings.MaxPast; past > 0 && now.Sub(r.At) > past {
		return 0, BadField("requestedTime", "is more than %v in the past", past)
	}
	if future := s.settings.MaxFuture; future > 0 && r.At.Sub(now) > future {
		return 0, BadField("requestedTime", "is more than %v in the future", future)
	}
	return us, nil
}

// checkName holds names to what every database keeps apart and can show.
func checkName(field, name string, most int) error {
	switch {
	case name == "":
		return BadField(field, "must not be empty")
	case len(name) > most:
		return BadField(field, "has %d bytes, at most %d", len(name), most)
	case !utf8.ValidString(name):
		return BadField(field, "is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return BadField(field, "holds a control character")
	case strings.TrimSpace(name) == "":
		return BadField(field, "must not be blank")
	}
	return nil
}

func (c *NewConfig) check() error {
	if err := checkName("configName", c.Name, MaxConfigName); err != nil {
		return err
	}
	switch {
	case c.Name == SharedScope:
		return BadField("configName", "must not be %q, which stands for the counters that all share", SharedScope)
	case c.Max < 0 || c.Max > plan.MaxPerWindow:
		return BadField("maxPerWindow", "is %d, want 0 (paused) to %d", c.Max, int64(plan.MaxPerWindow))
	case c.SizeMs < plan.MinSizeMs || c.SizeMs > plan.MaxSizeMs:
		return BadField("windowSize", "is %v, want %v to %v", time.Duration(c.SizeMs)*time.Millisecond,
			plan.MinSizeMs*time.Millisecond, plan.MaxSizeMs*time.Millisecond)
	case c.Options.MaxDelayMs != 0 && (c.Options.MaxDelayMs < c.SizeMs || c.Options.MaxDelayMs > plan.MaxDelayMs):
		return BadField("maxDelay", "is %s, want at least windowSize (%s) and at most %s",
			plan.FormatSize(c.Options.MaxDelayMs), plan.FormatSize(c.SizeMs), plan.FormatSize(plan.MaxDelayMs))
	case c.Options.Scope != "":
		return checkName("scope", c.Options.Scope, MaxConfigName)
	}
	return nil
}
