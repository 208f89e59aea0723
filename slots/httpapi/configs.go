package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// Names of the ways to spread events over a window.
const (
	jitterRandom     = "random"
	jitterStratified = "stratified"
)

type configRequest struct {
	ConfigName   string      `json:"configName"`
	MaxPerWindow web.Integer `json:"maxPerWindow"`
	WindowSize   string      `json:"windowSize"`
	Scope        *string     `json:"scope,omitempty"`
	Jitter       *string     `json:"jitter,omitempty"`
	MaxDelay     *string     `json:"maxDelay,omitempty"`
	Calendar     *calendar   `json:"calendar,omitempty"`
}

// calendar has the fields of what plan.ParseCalendar reads.
type calendar struct {
	Zone   string   `json:"zone"`
	Open   []string `json:"open,omitzero"` // an empty list is not the same as none
	Closed []string `json:"closed,omitzero"`
}

type configAnswer struct {
	ConfigID      string          `json:"configId"`
	ConfigName    string          `json:"configName"`
	MaxPerWindow  int64           `json:"maxPerWindow"`
	WindowSize    string          `json:"windowSize"`
	EffectiveFrom string          `json:"effectiveFrom"`
	Active        bool            `json:"active"`
	Scope         string          `json:"scope,omitempty"`
	Jitter        string          `json:"jitter,omitempty"`
	MaxDelay      string          `json:"maxDelay,omitempty"`
	Calendar      json.RawMessage `json:"calendar,omitempty"`
}

func configOf(c slots.Config) configAnswer {
	a := configAnswer{
		ConfigID: c.ID, ConfigName: c.Name, MaxPerWindow: c.Max, WindowSize: plan.FormatSize(c.SizeMs),
		EffectiveFrom: formatMicro(c.SinceUs), Active: c.Active, Scope: c.Options.Scope,
		Calendar: json.RawMessage(c.Options.Calendar.String()),
	}
	if c.Options.Stratified {
		a.Jitter = jitterStratified
	}
	if c.Options.MaxDelayMs != 0 {
		a.MaxDelay = plan.FormatSize(c.Options.MaxDelayMs)
	}
	return a
}

func (h *Handlers) getConfig(w http.ResponseWriter, r *http.Request, p web.Params) error {
	config, err := h.Scheduler.Config(r.Context(), p["name"])
	if err != nil {
		return asked(err, "name")
	}
	web.JSON(w, http.StatusOK, configOf(config))
	return nil
}

type configsAnswer struct {
	Configs    web.Rows           `json:"configs"` // configAnswer
	Unreadable []unreadableAnswer `json:"unreadable,omitempty"`
}

type unreadableAnswer struct {
	ConfigID   string `json:"configId"`
	ConfigName string `json:"configName"`
	Error      string `json:"error"`
}

func (h *Handlers) getConfigs(w http.ResponseWriter, r *http.Request, _ web.Params) error {
	list, err := h.Scheduler.Configs(r.Context())
	bad, some := errors.AsType[*slots.UnreadableError](err)
	if err != nil && !some {
		return err
	}
	if err := web.Keep(w, r, len(list)*configBytes); err != nil {
		return err
	}
	answer := configsAnswer{Configs: web.RowsOf(list, configOf)}
	if some {
		for _, c := range bad.Configs {
			answer.Unreadable = append(answer.Unreadable, unreadableAnswer{c.ID, c.Name, c.Err.Error()})
		}
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

func (h *Handlers) postConfig(w http.ResponseWriter, r *http.Request, _ web.Params) error {
	var body configRequest
	if err := web.ReadJSON(w, r, maxBody, &body); err != nil {
		return err
	}
	wanted, err := body.config()
	if err != nil {
		return err
	}
	config, err := h.Scheduler.PutConfig(r.Context(), wanted)
	if err != nil {
		return err
	}
	web.JSON(w, http.StatusOK, configOf(config))
	return nil
}

func (b *configRequest) config() (c slots.NewConfig, err error) {
	c.Name, c.Max = b.ConfigName, int64(b.MaxPerWindow)
	if c.SizeMs, err = plan.ParseSize(b.WindowSize); err != nil {
		return c, slots.BadField("windowSize", "is wrong: %s", strings.TrimPrefix(err.Error(), "window size "))
	}
	if b.Scope != nil {
		if c.Options.Scope = *b.Scope; c.Options.Scope == "" {
			return c, slots.BadField("scope", "must not be empty: leave it out for the usual one")
		}
	}
	if b.Jitter != nil {
		if *b.Jitter != jitterRandom && *b.Jitter != jitterStratified {
			return c, slots.BadField("jitter", "is %q, want %s or %s", web.Clip(*b.Jitter), jitterRandom, jitterStratified)
		}
		c.Options.Stratified = *b.Jitter == jitterStratified
	}
	if b.MaxDelay != nil {
		if c.Options.MaxDelayMs, err = plan.ParseDelay(*b.MaxDelay); err != nil {
			return c, slots.BadField("maxDelay", "%q is wrong: %s", web.Clip(*b.MaxDelay), err)
		}
	}
	if b.Calendar != nil {
		c.Options.Calendar, err = b.Calendar.parse()
	}
	return c, err
}

func (c *calendar) parse() (*plan.Calendar, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	parsed, err := plan.ParseCalendar(text)
	if err != nil {
		return nil, slots.BadField("calendar", "is wrong: %s", strings.TrimPrefix(err.Error(), "calendar: "))
	}
	return parsed, nil
}

func (h *Handlers) postFlush(w http.ResponseWriter, r *http.Request, _ web.Params) error {
	if err := h.Scheduler.Flush(r.Context()); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}
