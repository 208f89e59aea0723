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

// Logger returns a logger as configured that writes to w, and logs c.Warnings.
func (c *Config) Logger(w io.Writer) *slog.Logger {
	log := c.logger(w)
	for _, warning := range c.Warnings {
		log.Warn("check the settings", "warning", warning)
	}
	return log
}

func (c *Config) logger(w io.Writer) *slog.Logger {
	opt := &slog.HandlerOptions{Level: levels[strings.ToLower(c.LogLevel)]}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}
