package httpapi

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
)

// policyAnswer is a policy as clients see it.
type policyAnswer struct {
	Key string `json:"key"`
	policies.Words
	ID        int64  `json:"id,omitempty"` // not there before the policy is made
	PolicyKey string `json:"policyKey"`
	table.OlderWords
	Version   int64  `json:"version"`
	ChangedBy string `json:"changedBy"`
	ChangedAt string `json:"changedAt"`
	Warning   string `json:"warning,omitempty"`
}

func answerOf(p *table.Policy) *policyAnswer {
	if p == nil {
		return nil
	}
	return &policyAnswer{
		Key: p.Key, Words: p.Words(), ID: p.ID, PolicyKey: p.Key, OlderWords: table.OlderWordsOf(p.Figures),
		Version: p.Version, ChangedBy: p.ChangedBy, ChangedAt: table.TimeText(p.ChangedAt),
	}
}

// A Body is a policy as clients send it, and as an element of a file of policies: in the words of
// rules, in the older ones, or in both, as an answer has it.
type Body struct {
	Key           *string         `json:"key,omitempty"` // in the path where a policy is changed
	PolicyKey     *string         `json:"policyKey,omitempty"`
	Algorithm     json.RawMessage `json:"algorithm,omitempty"`
	Limit         json.RawMessage `json:"limit,omitempty"`
	Window        json.RawMessage `json:"window,omitempty"`
	Rate          json.RawMessage `json:"rate,omitempty"`
	Burst         json.RawMessage `json:"burst,omitempty"`
	Type          json.RawMessage `json:"type,omitempty"`
	Capacity      json.RawMessage `json:"capacity,omitempty"`
	RefillRate    json.RawMessage `json:"refillRate,omitempty"`
	WindowSeconds json.RawMessage `json:"windowSeconds,omitempty"`

	// What an answer says beside; it changes nothing.
	ID        *web.Integer `json:"id,omitempty"`
	Version   *web.Integer `json:"version,omitempty"`
	ChangedBy *string      `json:"changedBy,omitempty"`
	ChangedAt *string      `json:"changedAt,omitempty"`
	Warning   *string      `json:"warning,omitempty"`
}

// givenKey returns the key that a body has under either name, or nil if it has neither. It fails if both differ.
func (b *Body) givenKey() (*string, error) {
	switch {
	case b.Key == nil:
		return b.PolicyKey, nil
	case b.PolicyKey != nil && *b.PolicyKey != *b.Key:
		return nil, web.BadRequest("key %q and policyKey %q contradict each other", web.Clip(*b.Key), web.Clip(*b.PolicyKey))
	}
	return b.Key, nil
}

// figures reads the numbers of a body.
func (b *Body) figures() (f policies.Figures, err error) {
	var g table.Given
	rules, older := g.Words()
	for i, text := range []json.RawMessage{
		b.Algorithm, b.Limit, b.Window, b.Rate, b.Burst, b.Type, b.Capacity, b.RefillRate, b.WindowSeconds,
	} {
		if len(text) == 0 {
			continue
		}
		w := slices.Concat(rules, older)[i]
		switch w.Name {
		case "limit", "burst", "capacity":
			*w.Text, err = integer(w.Name, text)
		case "refillRate", "windowSeconds":
			*w.Text, err = amount(w.Name, text)
		default:
			*w.Text, err = word(w.Name, text)
		}
		if err != nil {
			return f, err
		}
	}
	if f, err = g.Figures(); err != nil {
		return f, web.BadRequest("%v", err)
	}
	return f, nil
}

func word(name string, text json.RawMessage) (string, error) {
	var s string
	if text[0] != '"' || json.Unmarshal(text, &s) != nil {
		return "", web.BadRequest("%s must be a string, not %s", name, web.Clip(string(text)))
	}
	if s == "" {
		return "", web.BadRequest("%s is empty", name)
	}
	return s, nil
}

func integer(name string, text json.RawMessage) (string, error) {
	var n web.Integer
	if err := json.Unmarshal(text, &n); err != nil || string(text) == "null" {
		return "", web.BadRequest("%s must be a whole number of at most 15 digits, not %s", name, web.Clip(string(text)))
	}
	return strconv.FormatInt(int64(n), 10), nil
}

// amount reads a number, which may have an exponent as JSON allows.
func amount(name string, text json.RawMessage) (string, error) {
	plain := string(text)
	if strings.ContainsAny(plain, "eE-") {
		if number, err := strconv.ParseFloat(plain, 64); err == nil && number >= 0 {
			plain = strconv.FormatFloat(math.Abs(number), 'f', -1, 64)
		}
	}
	if _, err := policies.ParseAmount(plain); err != nil {
		return "", web.BadRequest("%s %v", name, err)
	}
	return plain, nil
}

// Edit returns what a body of a file says: make or change a policy.
func (b *Body) Edit() (e table.Edit, err error) {
	key, err := b.givenKey()
	switch {
	case err != nil:
		return e, err
	case key == nil:
		return e, errors.New("key is missing")
	}
	if e.Key, err = policies.Normalize(*key); err == nil {
		e.Figures, err = b.figures()
	}
	return e, err
}
