package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// A Slot is what became of one event.
type Slot struct {
	Status        int    `json:"status"`                  // as HTTP has it; 200: the event has a slot
	EventID       string `json:"eventId,omitempty"`       // empty if the answer is about all events
	ScheduledTime string `json:"scheduledTime,omitempty"` // RFC 3339
	DelayMs       int64  `json:"delayMs"`                 // from the time that was asked for
	Replayed      bool   `json:"replayed"`                // the event had the slot before
	Message       string `json:"message,omitempty"`       // why there is no slot
	RetryAfter    int64  `json:"retryAfter,omitempty"`    // seconds, from the service; Assign makes RetryAfterMs of it
	RetryAfterMs  int64  `json:"retryAfterMs,omitempty"`
}

// Assign asks for slots from the time at (RFC 3339) by a config, empty for the default
// one, and returns one result for each event. The service takes at most [slots.MaxBatch]
// events. Errors: *[Refusal], or that there was no answer.
func (a *API) Assign(ctx context.Context, events []string, config, at string) ([]Slot, error) {
	type ask struct {
		EventID       string `json:"eventId"`
		ConfigName    string `json:"configName,omitempty"`
		RequestedTime string `json:"requestedTime"`
	}
	asks := make([]ask, len(events))
	for i, event := range events {
		asks[i] = ask{event, config, at}
	}
	var answer struct {
		Results []Slot `json:"results"`
	}
	if err := a.Call(ctx, http.MethodPost, "/api/v1/slots:batch", map[string]any{"events": asks}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(events) {
		return nil, fmt.Errorf("the answer has %d results for %d events", len(answer.Results), len(events))
	}
	for i := range answer.Results {
		r := &answer.Results[i]
		r.RetryAfterMs, r.RetryAfter = r.RetryAfter*1000, 0
	}
	return answer.Results, nil
}

// A Config is a config of slots as the admin API has it.
type Config struct {
	ConfigID      string          `json:"configId,omitempty"`
	ConfigName    string          `json:"configName"`
	MaxPerWindow  int64           `json:"maxPerWindow"`
	WindowSize    string          `json:"windowSize"`
	EffectiveFrom string          `json:"effectiveFrom,omitempty"`
	Scope         string          `json:"scope,omitempty"`
	Jitter        string          `json:"jitter,omitempty"`
	MaxDelay      string          `json:"maxDelay,omitempty"`
	Calendar      json.RawMessage `json:"calendar,omitempty"`
}

// Line describes the config on one line.
func (c *Config) Line() string {
	limit := fmt.Sprintf("max=%d", c.MaxPerWindow)
	if c.MaxPerWindow == 0 {
		limit = "paused"
	}
	parts := []string{c.ConfigName, limit, "window=" + c.WindowSize}
	for _, option := range []struct{ name, value string }{
		{"scope", c.Scope}, {"jitter", c.Jitter}, {"max-delay", c.MaxDelay}, {"calendar", string(c.Calendar)},
		{"since", c.EffectiveFrom}, {"id", c.ConfigID},
	} {
		if option.value != "" {
			parts = append(parts, option.name+"="+option.value)
		}
	}
	return strings.Join(parts, " ")
}

const (
	configPath  = "/admin/rate-limit/config"
	configsPath = "/admin/rate-limit/configs"
)

// Configs returns the active configs. If some cannot be read it returns the others, and an error that names those.
func (a *API) Configs(ctx context.Context) ([]Config, error) {
	var answer struct {
		Configs    []Config `json:"configs"`
		Unreadable []struct {
			ConfigName, Error string
		} `json:"unreadable"`
	}
	err := a.Call(ctx, http.MethodGet, configsPath, nil, &answer)
	for _, c := range answer.Unreadable {
		err = errors.Join(err, fmt.Errorf("config %q cannot be read: %s", c.ConfigName, c.Error))
	}
	return answer.Configs, err
}

// Config returns the active config with a name. It returns a *[Refusal] with code 404
// if no config has that name.
func (a *API) Config(ctx context.Context, name string) (c Config, err error) {
	err = a.Call(ctx, http.MethodGet, configPath+"?name="+url.QueryEscape(name), nil, &c)
	return c, err
}

// Change reads a config, has edit change it, makes the result the active one and returns
// that. If the config does not exist, edit gets the error as missing.
func (a *API) Change(ctx context.Context, name string,
	edit func(c *Config, missing error) error) (made Config, err error) {
	c, err := a.Config(ctx, name)
	var refusal *Refusal
	if err != nil && !(errors.As(err, &refusal) && refusal.Code == http.StatusNotFound) {
		return made, err
	}
	c.ConfigID, c.EffectiveFrom, c.ConfigName = "", "", name
	if err := edit(&c, err); err != nil {
		return made, err
	}
	err = a.Call(ctx, http.MethodPost, configPath, &c, &made)
	return made, err
}
