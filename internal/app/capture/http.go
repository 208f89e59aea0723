package capture

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// Bounds of a capture over HTTP.
const (
	maxFor       = time.Hour
	writeTimeout = 10 * time.Second // for what has waited, not for the whole
)

// DroppedTrailer is the trailer that says how many requests are missing in an answer.
const DroppedTrailer = "X-Headgate-Dropped"

// ServeHTTP streams what is asked, for the duration in the parameter for; see [ParseQuery] for others.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		web.Error(w, http.StatusMethodNotAllowed, "only GET is allowed")
		return
	}
	conf, period, err := parseRequest(r.URL.Query())
	if err != nil {
		web.Error(w, http.StatusBadRequest, err.Error())
		return
	}
	s := newStream(conf)
	s.keep = func(bytes int) bool { return web.KeepIn(r.Context(), bytes) }
	if err := h.add(s); err != nil {
		web.Error(w, http.StatusTooManyRequests, err.Error())
		return
	}
	defer h.remove(s)
	web.Yield(r.Context()) // and never resume
	ctx, cancel := context.WithTimeout(r.Context(), period)
	defer cancel()
	h.log.Info("requests are captured by the admin API", "by", web.CallerOf(r.Context()), "for", period)
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Trailer", DroppedTrailer)
	to := &flushed{w, http.NewResponseController(w)}
	if _, err := to.Write(nil); err == nil {
		_ = h.copy(ctx, s, to)
	}
	_, dropped := s.counts()
	w.Header().Set(DroppedTrailer, strconv.FormatInt(dropped, 10))
}

func parseRequest(query url.Values) (c Config, period time.Duration, err error) {
	period, err = units.ParseDuration(query.Get("for"))
	if err != nil || period <= 0 || period > maxFor {
		return c, 0, errors.New("the parameter for must be a duration up to 1h, such as 5m")
	}
	query.Del("for")
	c, err = ParseQuery(query.Encode())
	return c, period, err
}

// flushed sends what is written at once, or gives up.
type flushed struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (f *flushed) Write(lines []byte) (int, error) {
	_ = f.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := f.ResponseWriter.Write(lines)
	return n, errors.Join(err, f.control.Flush())
}
