package config

import (
	"io"
	"log/slog"
	"strings"
)

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// Logger returns a logger as configured that writes to w.
func (c *Config) Logger(w io.Writer) *slog.Logger {
	opt := &slog.HandlerOptions{Level: levels[strings.ToLower(c.LogLevel)]}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}
