package notify

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const start = int64(1_700_000_000_000_000)

func TestAWindowEndsWhenItsMinutesHaveElapsed(t *testing.T) {
	row := Row{RateLimit: 3, Minutes: 2, Count: 3, Reserved: 2, StartUs: start, Version: 7}
	for _, c := range []struct {
		name string
		at   int64
		want Row
	}{
		{"just begun", start, row},
		{"a microsecond before the end", start + 2*minuteUs - 1, row},
		{"the end", start + 2*minuteUs, Row{3, 2, 0, 0, start + 2*minuteUs, 7}},
		{"long after", start + 100*minuteUs, Row{3, 2, 0, 0, start + 100*minuteUs, 7}},
		{"the clock has stepped back", start - 5, Row{3, 2, 3, 2, start - 5, 7}},
	} {
		if got := row.At(c.at); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if rest := row.Rest(start + 1); rest != 2*time.Minute-time.Microsecond {
		t.Errorf("the window lasts %v", rest)
	}
}

func TestALimitOfZeroAdmitsNobodyAlsoAfterTheWindow(t *testing.T) {
	row := Row{Minutes: 1, StartUs: start}
	for _, at := range []int64{start, start + minuteUs, start + 5*minuteUs} {
		if _, ok := row.At(at).Take(); ok {
			t.Errorf("admitted at %d", at)
		}
	}
}

// TestUnitsAreGivenOutOnce: whatever the order of single units and blocks, no unit of a
// window is given out twice, and none beyond the limit.
func TestUnitsAreGivenOutOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		row := Row{RateLimit: random.Int64N(40), Minutes: 1, StartUs: start}
		given := int64(0)
		for range 60 {
			if random.IntN(3) == 0 {
				next, from, to := row.Reserve(random.Int64N(6) + 1)
				if from < min(row.Taken(), row.RateLimit) || to < from {
					t.Fatalf("%+v gives %d to %d", row, from, to)
				}
				given += to - from
				row = next
			} else if next, ok := row.Take(); ok {
				given++
				row = next
			}
			if given > row.RateLimit || row.Taken() < given {
				t.Fatalf("%d units are given out: %+v", given, row)
			}
		}
		if given != row.RateLimit {
			t.Fatalf("%d units are given out of %d", given, row.RateLimit)
		}
	}
}

func TestConfigsOutOfBoundsNameTheField(t *testing.T) {
	for _, c := range []struct {
		config Config
		field  string
	}{
		{Config{"u", 0, 1}, ""},
		{Config{"u", MaxLimit, MaxMinutes}, ""},
		{Config{strings.Repeat("é", 255), 1, 1}, ""},
		{Config{"", 1, 1}, "userId"},
		{Config{strings.Repeat("x", 256), 1, 1}, "userId"},
		{Config{"a\nb", 1, 1}, "userId"},
		{Config{"a\x00", 1, 1}, "userId"},
		{Config{"u", -1, 1}, "rateLimit"},
		{Config{"u", MaxLimit + 1, 1}, "rateLimit"},
		{Config{"u", 1, 0}, "timeWindow"},
		{Config{"u", 1, -1}, "timeWindow"},
		{Config{"u", 1, MaxMinutes + 1}, "timeWindow"},
	} {
		checkField(t, c.config.Check(), c.field)
	}
	for text, field := range map[string]string{"hello\n": "", "": "message", "a\x00": "message",
		strings.Repeat("x", MaxText+1): "message"} {
		checkField(t, CheckText(text), field)
	}
}

func checkField(t *testing.T, err error, field string) {
	t.Helper()
	var wrong *FieldError
	errors.As(err, &wrong)
	if (err == nil) != (field == "") || err != nil && (wrong == nil || wrong.Field != field) {
		t.Errorf("%v, want an error about %q", err, field)
	}
}

func TestMessagesAreReadAsTheyWereWritten(t *testing.T) {
	m := Message{ID: "1", UserID: "alice", Text: "hi <&> \u2028 ünï", AcceptedAt: time.UnixMicro(start).UTC()}
	got, err := Decode(m.Encode())
	if err != nil || got != m {
		t.Errorf("%+v, %v", got, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(m.Encode(), &fields); err != nil || fields["userId"] != "alice" ||
		fields["message"] != m.Text {
		t.Errorf("%v, %v", fields, err)
	}
}

func TestRecordsThatAreNoMessages(t *testing.T) {
	for _, value := range []string{"", "hello", "[]", `"x"`, "{}", `{"userId":"u"}`, `{"message":"x"}`,
		`{"userId":1,"message":"x"}`, "{\"userId\":\"\xff\",\"message\":\"x\"}",
		`{"userId":"u","message":"x","acceptedAt":"never"}`, `{"id":"a\nb","userId":"u","message":"x"}`,
		`{"id":"` + strings.Repeat("x", maxID+1) + `","userId":"u","message":"x"}`} {
		if m, err := Decode([]byte(value)); err == nil {
			t.Errorf("%q is read as %+v", value, m)
		}
	}
	if _, err := Decode([]byte(`{"userId":"u","message":"x","priority":1}`)); err != nil {
		t.Errorf("a field of a later gateway: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"userId":"u","message":"x"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		if m, err := Decode(value); err == nil {
			if again, err := Decode(m.Encode()); err != nil || again.UserID != m.UserID || again.Text != m.Text {
				t.Errorf("%+v is read as %+v, %v", m, again, err)
			}
		}
	})
}
