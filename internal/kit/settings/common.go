package settings

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
)

// Config is the row of the file with settings, which every program has.
func Config(file *string) Setting {
	return Row("config", file, "", "YAML `file` with settings, by the names of these flags")
}

// A Log says what is logged, and how.
type Log struct {
	Level, Format string

	lost *atomic.Int64 // lines, by its logger
}

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

// LogrusFormat is the format of JSON that envoyproxy/ratelimit writes.
const LogrusFormat = "logrus"

// Rows are the settings of the log, which every program has.
func (c *Log) Rows() []Setting {
	level := func(v string) error {
		if _, ok := levels[strings.ToLower(v)]; !ok {
			return fmt.Errorf("must be debug, info, warn or error, not %q", v)
		}
		return nil
	}
	rows := []Setting{
		Row("log-level", &c.Level, "info", "debug, info, warn or error", Check(level)),
		Row("log-format", &c.Format, "text",
			"text, json, or logrus: JSON whose fields are called @timestamp, @message and level, as envoyproxy/ratelimit has "+
				"them", OneOf("text", "json", LogrusFormat)),
	}
	rows[0].Words = []string{"debug", "info", "warn", "error"} // of which capitals do, too
	return rows
}

// Logger returns a logger that writes to w, and logs the warnings of Resolve. Callers do not wait for a w that is
// stuck.
func (c *Log) Logger(w io.Writer, warnings []string) *slog.Logger {
	note := func(lost int) []byte {
		var line bytes.Buffer
		slog.New(c.handler(&line)).Error("the log could not be written for a while", "lines_lost", lost)
		return line.Bytes()
	}
	c.lost = new(atomic.Int64)
	log := slog.New(c.handler(&logWriter{to: w, note: note, lost: c.lost}))
	for _, warning := range warnings {
		log.Warn("check the settings", "warning", warning)
	}
	return log
}

func (c *Log) handler(w io.Writer) slog.Handler {
	opt := &slog.HandlerOptions{Level: levels[strings.ToLower(c.Level)], ReplaceAttr: withUnit}
	switch c.Format {
	case "json":
		return slog.NewJSONHandler(w, opt)
	case LogrusFormat:
		opt.ReplaceAttr = logrusNames
		return slog.NewJSONHandler(w, opt)
	}
	return slog.NewTextHandler(w, opt)
}

// withUnit makes every format write durations such as 1.5s: in JSON, slog writes nanoseconds without a unit.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

// logrusNames gives what every line has the names of envoyproxy/ratelimit, and levels their words there.
func logrusNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch level, isLevel := a.Value.Any().(slog.Level); {
		case isLevel && level == slog.LevelWarn:
			return slog.String(slog.LevelKey, "warning")
		case isLevel:
			return slog.String(slog.LevelKey, strings.ToLower(level.String()))
		case a.Key == slog.TimeKey:
			a.Key = "@timestamp"
		case a.Key == slog.MessageKey:
			a.Key = "@message"
		}
	}
	return withUnit(groups, a)
}

// Defaults of the pools of databases, which are those of sqldb.Config.
const PoolMin, PoolMax = 5, 30

// Pool checks the bounds of a pool, of which flag is the lower one.
func Pool(low, high *int, flag string) Option {
	return Check(func(int) error {
		if *low < 0 || *high < 1 || *low > *high {
			return fmt.Errorf("%d to %d connections: want at least 1, and no fewer than %s", *low, *high, flag)
		}
		return nil
	})
}

// NeedsTLS refuses a file of a TLS client that talks no TLS; flag is that of TLS.
func NeedsTLS(on *bool, flag string) Option {
	return Needs(func() bool { return *on }, "needs "+flag+": without it nothing is encrypted")
}
