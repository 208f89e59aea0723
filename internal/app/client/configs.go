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

// Configs returns the active configs.
func (a *API) Configs(ctx context.Context) ([]Config, error) {
	var answer struct {
		Configs []Config `json:"configs"`
	}
	err := a.Call(ctx, http.MethodGet, configsPath, nil, &answer)
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
