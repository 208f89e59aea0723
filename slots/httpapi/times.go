package httpapi

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/slots"
)

// Forms of times in answers, which are in UTC always.
const (
	milliForm = "2006-01-02T15:04:05.000Z"
	microForm = "2006-01-02T15:04:05.000000Z"
)

func formatMilli(ms int64) string { return time.UnixMilli(ms).UTC().Format(milliForm) }
func formatMicro(us int64) string { return time.UnixMicro(us).UTC().Format(microForm) }

// timeForm is stricter than time.Parse, which takes one digit for an hour, a comma for
// a point, offsets of days, and drops digits after the ninth.
var timeForm = regexp.MustCompile(
	`^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)

// parseTime reads an RFC 3339 time with any offset and up to nine digits of a
// second. What is below a microsecond is rounded up, so that nothing happens
// before the time that was meant. It must be a time that slots can have.
func parseTime(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, slots.BadField(field, "must not be empty")
	}
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	if err != nil || !timeForm.MatchString(text) {
		return t, slots.BadField(field,
			"is %q, want an RFC 3339 time such as 2025-06-01T12:00:00Z, with at most nine digits of a second", web.Clip(text))
	}
	t = t.UTC()
	if rest := t.Nanosecond() % 1000; rest != 0 {
		t = t.Add(time.Duration(1000 - rest))
	}
	if t.Year() < 1900 || t.Year() >= 9000 {
		return t, slots.BadField(field, "is outside the years 1900 to 9000")
	}
	return t, nil
}

// request makes a Request of its fields.
func request(eventID string, configName *string, requestedTime string) (slots.Request, error) {
	r := slots.Request{EventID: eventID}
	if configName != nil {
		if *configName == "" {
			return r, slots.BadField("configName", "must not be empty: leave it out for the default config")
		}
		r.ConfigName = *configName
	}
	var err error
	r.At, err = parseTime("requestedTime", requestedTime)
	return r, err
}

// asked gives errors about a config's name the name of the parameter.
func asked(err error, parameter string) error {
	if field, ok := errors.AsType[*slots.FieldError](err); ok && field.Field == "configName" {
		return &slots.FieldError{Field: parameter, Problem: field.Problem}
	}
	return err
}
