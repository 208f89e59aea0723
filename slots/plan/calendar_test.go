package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	_ "time/tzdata" // the same zones on every machine
)

const berlin = `{"zone":"Europe/Berlin","open":["mon-fri 09:00-17:00","sat 10:00-12:00"],"closed":["2026-12-25",` +
	`"2026-12-31 12:00-24:00"]}`

func mustCalendar(t testing.TB, text string) *Calendar {
	t.Helper()
	c, err := ParseCalendar([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// entries returns n different entries of closed.
func entriesOf(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"2026-%02d-%02d"`, 1+i/28, 1+i%28))
	}
	return strings.Join(list, ",")
}

func TestCalendarString(t *testing.T) {
	for text, want := range map[string]string{
		berlin:           berlin,
		`{"zone":"UTC"}`: `{"zone":"UTC"}`,
		"\n{ \"closed\" : [ ] , \"open\":null, \"zone\" : " +
			"\"UTC\" } \t": `{"zone":"UTC"}`,
		`{"zone":"UTC","closed":["2027-01-01 00:00-24:00","2026-01-01","2026-01-01 08:00-09:00",` +
			`"2026-01-01"]}`: `{"zone":"UTC","closed":["2026-01-01","2026-01-01 08:00-09:00","2027-01-01"]}`,
		`{"zone":"UTC","open":["SAT 10:00-12:00","  mon-mon\t09:00-17:00 ","Fri-Mon 00:00-24:00","mon ` +
			`09:00-17:00"]}`: `{"zone":"UTC","open":["mon 09:00-17:00","fri-mon 00:00-24:00","sat 10:00-12:00"]}`,
		`{"open":["mon 12:00-13:00","mon 08:00-13:00","mon-tue 08:00-12:00","mon 08:00-12:00"],"zone":"\u0055TC",` +
			`"closed":null}`: `{"zone":"UTC","open":["mon 08:00-12:00","mon 08:00-13:00","mon 12:00-13:00","mon-tue ` +
			`08:00-12:00"]}`,
	} {
		c := mustCalendar(t, text)
		if c.String() != want {
			t.Errorf("%s: %s, want %s", text, c, want)
		}
		if again := mustCalendar(t, want); again.String() != want {
			t.Errorf("%s: read back as %s", want, again)
		}
	}
	var none *Calendar
	if none.String() != "" {
		t.Error("nil calendar")
	}
}

func TestParseCalendarBounds(t *testing.T) {
	mustCalendar(t, `{"zone":"UTC","closed":[`+entriesOf(50)+`]}`)
	mustCalendar(t, `{"zone":"UTC","closed":[`+entriesOf(49)+`],"open":["mon 00:00-24:00"]}`)
	full := `{"zone":"UTC"}` + strings.Repeat(" ", 1986)
	mustCalendar(t, full)
	refuse(t, full+" ", "has 2001 bytes, want at most 2000")
	refuse(t, `{"zone":"UTC","closed":[`+entriesOf(51)+`]}`, "have 51 entries, want at most 50")
	refuse(t, `{"zone":"UTC","closed":[`+entriesOf(50)+`],"open":["mon 00:00-24:00"]}`, "have 51 entries")
	refuse(t, strings.Repeat("[", 1<<20), "want at most 2000")
	refuse(t, strings.Repeat("[", 2000), "want a JSON object")
}

func refuse(t *testing.T, text, want string) {
	t.Helper()
	c, err := ParseCalendar([]byte(text))
	if err == nil || c != nil {
		t.Errorf("%.80s: %s, %v", text, c, err)
	} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "calendar: ") {
		t.Errorf("%.80s: %v, want it to say %q", text, err, want)
	}
}

func TestParseCalendarRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "want a JSON object", "null": "want a JSON object", "[]": "want a JSON object", `"UTC"`: "want a JSON object",
		"{":                           "is not valid JSON",
		`{"zone":"UTC"`:               "is not valid JSON",
		`{"zone":`:                    "zone: is not valid JSON",
		`{"zone" "UTC"}`:              "is not valid JSON",
		`{"zone":"UTC",}`:             "is not valid JSON",
		`{"zone":"UTC"}{}`:            "text after the JSON object",
		`{"zone":"UTC"} x`:            "text after the JSON object",
		`{"zone":"UTC","zone":"UTC"}`: "zone: is given twice",
		`{"zone":"UTC","Open":[]}`:    `unknown field "Open"`,
		`{"zone":"UTC","opne":[]}`:    `unknown field "opne"`,
		`{}`:                          "zone: is required",
		`{"zone":""}`:                 "zone: is required",
		`{"zone":null}`:               "zone: is required",
		`{"zone":7}`:                  "zone: is required",
		`{"zone":"Local"}`:            "zone: is required",
		`{"zone":"Europe/Atlantis"}`:  `zone: "Europe/Atlantis" is not known`,
		`{"zone":"../../etc/passwd"}`: `zone: "../../etc/passwd" is not known`,
		`{"zone":"/etc/passwd"}`:      `zone: "/etc/passwd" is not known`,
		`{"zone":"UTC","open":[]}`:    "open: is empty",
		`{"zone":"UTC","open":"mon 00:00-24:00"}`: "open: want a list of strings",
		`{"zone":"UTC","closed":{}}`:              "closed: want a list of strings",
	} {
		refuse(t, text, want)
	}
}

func TestParseEntriesRefuse(t *testing.T) {
	const days, hours, order, date = "want weekdays and hours", "want hours from 00:00 to 24:00",
		"must end after it begins", "want a date"
	open := map[string]string{
		`7`: "want a string", `null`: "want a string", `[]`: "want a string", `""`: days, `"mon"`: days,
		`"09:00-17:00"`:       days,
		`"mon 09:00-17:00 x"`: days, `"mo 09:00-17:00"`: days, `"monday 09:00-17:00"`: days, `"mon- 09:00-17:00"`: days,
		`"-mon 09:00-17:00"`: days, `"mon-tue-wed 09:00-17:00"`: days, `"mon,tue 09:00-17:00"`: days,
		`"mon - tue 09:00-17:00"`: days,
		`"mon 9:00-17:00"`:        hours, `"mon 09:00"`: hours, `"mon 09:00-"`: hours, `"mon 09:00-17:60"`: hours,
		`"mon 09:00-24:01"`: hours,
		`"mon 09:00-25:00"`: hours, `"mon 0900-1700"`: hours, `"mon 09.00-17.00"`: hours, `"mon +9:00-17:00"`: hours,
		`"mon 09:00-17:00:00"`: hours, `"mon 09:00-17:00-18:00"`: hours, `"mon ٠9:00-17:00"`: hours,
		`"mon /9:00-1::00"`: hours,
		`"mon 17:00-09:00"`: order, `"mon 09:00-09:00"`: order, `"mon 24:00-24:00"`: order, `"mon 22:00-00:00"`: order,
	}
	for entry, want := range open {
		refuse(t, `{"zone":"UTC","open":["mon 00:00-24:00",`+entry+`]}`, "open[1]: ")
		refuse(t, `{"zone":"UTC","open":["mon 00:00-24:00",`+entry+`]}`, want)
	}
	closed := map[string]string{
		`20261225`: "want a string", `""`: date, `" "`: date, `"2026-12-32"`: date, `"2026-02-29"`: date, `"2026-1-1"`: date,
		`"26-12-25"`: date,
		`"12-25"`:    date, `"2026-12-25T00:00"`: date, `"2026-12-25 2026-12-26 x"`: date, `"+2026-12-25"`: date,
		`"12026-12-25"`:           date,
		`"2026-12-25 2026-12-26"`: hours, `"2026-12-25 12:00"`: hours, `"2026-12-25 13:00-12:00"`: order,
	}
	for entry, want := range closed {
		refuse(t, `{"zone":"UTC","closed":[`+entry+`]}`, "closed[0]: ")
		refuse(t, `{"zone":"UTC","closed":[`+entry+`]}`, want)
	}
}

func FuzzParseCalendar(f *testing.F) {
	for _, s := range []string{
		berlin, `{"zone":"UTC"}`, `{"zone":"America/New_York","open":["fri-mon 00:00-24:00"]}`, `{"zone":"Local"}`,
		`{"zone":"UTC","open":[null]}`,
		`{"zone":"Australia/Lord_Howe","open":["SUN 01:45-02:15"],"closed":["0000-01-01","9999-12-31 00:00-00:01"]}`,
		`{"zone":"UTC","zone":1}`, `[`,
	} {
		f.Add([]byte(s), int64(1_795_262_400_000), int64(4000))
		f.Add([]byte(s), int64(2_240_524_800_000), int64(MaxSizeMs)) // 2040-12-31
	}
	f.Fuzz(func(t *testing.T, text []byte, start, size int64) {
		c, err := ParseCalendar(text)
		if err != nil {
			if c != nil || !strings.HasPrefix(err.Error(), "calendar: ") {
				t.Fatalf("%q: %v, %v", text, c, err)
			}
			return
		}
		s := c.String()
		if !json.Valid([]byte(s)) || len(s) > len(text) {
			t.Fatalf("%q: %s", text, s)
		}
		if again, err := ParseCalendar([]byte(s)); err != nil || again.String() != s {
			t.Fatalf("%q: %s read back: %v, %v", text, s, again, err)
		}
		size = MinSizeMs + floorMod(size, MaxSizeMs-MinSizeMs+1)
		if start > -farMs && start < farMs {
			start = gridBefore(start, size)
			from, to, ok := c.Span(start, size)
			sane(t, c, start, size, from, to, ok)
		}
	})
}
