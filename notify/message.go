package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Message is a notification that was accepted, as it is in the topic.
type Message struct {
	// ID is the gateway's name for the message. A message that is in the topic more than
	// once has the same one.
	ID         string    `json:"id"`
	UserID     string    `json:"userId"`
	Text       string    `json:"message"`
	AcceptedAt time.Time `json:"acceptedAt"`
}

// Bounds of what clients send.
const (
	maxID      = 1024      // bytes, of a record; the gateway's have 36
	MaxUserID  = 255       // characters
	MaxText    = 16 << 10  // bytes
	MaxLimit   = 1<<31 - 1 // messages per window
	MaxMinutes = 5_256_000 // ten years
)

// Encode returns the value of the message's record.
func (m Message) Encode() []byte {
	data, err := json.Marshal(m)
	if err != nil { // strings and times can be marshalled, but for years beyond 9999
		panic(err)
	}
	return data
}

// Decode reads the value of a record. Fields that it does not know are those of later
// gateways.
func Decode(value []byte) (Message, error) {
	var m Message
	if !utf8.Valid(value) {
		return m, errors.New("not valid UTF-8")
	}
	if err := json.Unmarshal(value, &m); err != nil {
		return m, fmt.Errorf("not a message: %w", err)
	}
	if err := errors.Join(checkID(m.ID), CheckUserID(m.UserID)); err != nil {
		return m, err
	}
	return m, CheckText(m.Text)
}

// checkID returns a [*FieldError] if a header cannot carry the id.
func checkID(id string) error {
	switch {
	case len(id) > maxID:
		return &FieldError{"id", fmt.Sprintf("has %d bytes, at most %d are allowed", len(id), maxID)}
	case strings.ContainsFunc(id, unicode.IsControl):
		return &FieldError{"id", "must not have control characters"}
	}
	return nil
}

// CheckUserID returns a [*FieldError] if no user can have the id.
func CheckUserID(id string) error {
	switch {
	case id == "":
		return &FieldError{"userId", "must not be empty"}
	case utf8.RuneCountInString(id) > MaxUserID:
		return &FieldError{"userId", fmt.Sprintf("has %d characters, at most %d are allowed",
			utf8.RuneCountInString(id), MaxUserID)}
	case strings.ContainsFunc(id, unicode.IsControl):
		return &FieldError{"userId", "must not have control characters"}
	}
	return nil
}

// CheckText returns a [*FieldError] if the text cannot be that of a message.
func CheckText(text string) error {
	switch {
	case text == "":
		return &FieldError{"message", "must not be empty"}
	case len(text) > MaxText:
		return &FieldError{"message", fmt.Sprintf("has %d bytes, at most %d are allowed", len(text), MaxText)}
	case strings.Contains(text, "\x00"):
		return &FieldError{"message", "must not have the character U+0000"}
	}
	return nil
}
