package sqlstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// maxOptions is the width of the column CONFIG_OPT_TX, in bytes.
const maxOptions = 3000

// stratified is what the key "jitter" may say.
const stratified = "stratified"

// options are slots.Options as the column CONFIG_OPT_TX keeps them.
type options struct {
	Scope    string          `json:"scope,omitempty"`
	Jitter   string          `json:"jitter,omitempty"`
	MaxDelay int64           `json:"maxDelayMs,omitempty"`
	Calendar json.RawMessage `json:"calendar,omitempty"`
}

// optionsText writes options as JSON; empty if there are none.
func optionsText(o slots.Options) (string, error) {
	if o == (slots.Options{}) {
		return "", nil
	}
	stored := options{Scope: o.Scope, MaxDelay: o.MaxDelayMs}
	if o.Stratified {
		stored.Jitter = stratified
	}
	if o.Calendar != nil {
		stored.Calendar = json.RawMessage(o.Calendar.String())
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return "", fmt.Errorf("options: %w", err)
	}
	if len(text) > maxOptions {
		return "", slots.BadField("calendar", "makes the options %d bytes long, want at most %d", len(text), maxOptions)
	}
	return string(text), nil
}

// parseOptions reads what optionsText wrote. What it does not know is an error:
// a limit must not be wider than its author meant.
func parseOptions(text string) (o slots.Options, err error) {
	if text == "" {
		return o, nil
	}
	var stored options
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&stored); err != nil {
		return o, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return o, errors.New("there is more after the JSON object")
	}
	switch stored.Jitter {
	case "", "random":
	case stratified:
		o.Stratified = true
	default:
		return o, fmt.Errorf("jitter %q: want random or stratified", stored.Jitter)
	}
	o.Scope, o.MaxDelayMs = stored.Scope, stored.MaxDelay
	if len(stored.Calendar) > 0 && string(stored.Calendar) != "null" {
		if o.Calendar, err = plan.ParseCalendar(stored.Calendar); err != nil {
			return slots.Options{}, fmt.Errorf("calendar: %w", err)
		}
	}
	return o, nil
}
