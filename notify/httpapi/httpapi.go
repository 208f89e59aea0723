package httpapi

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/notify"
)

// A Gateway is what the handlers need.
type Gateway interface {
	// Configure saves what an administrator says about a user, and returns when the user's new window begins.
	Configure(ctx context.Context, c notify.Config) (start time.Time, err error)
	// Send gives the message its ID and instant.
	Send(ctx context.Context, user, text string) (notify.Accepted, error)
}

// Config is what New needs.
type Config struct {
	Gateway Gateway
	Guard   *web.Guard                                 // in front of /api/config; nil: everybody may use it
	Answer  func(o notify.Outcome, took time.Duration) // gets the outcome of every send
	Log     *slog.Logger
	Timeout time.Duration // of a request, the arrival of its body included
	Most    int           // requests at the same time
}

const maxBody = 64 << 10

type handlers struct {
	Config
	places places
	often  background.LogLimit
}

// loggedPerSecond bounds the failures that the log has.
const loggedPerSecond = 10

// New returns the handler of /api/config, /api/send and /openapi.json.
func New(c Config) http.Handler {
	h := &handlers{Config: c, places: places{most: c.Most, users: map[string]int{}},
		often: background.LogLimit{PerSecond: loggedPerSecond}}
	mux := http.NewServeMux()
	for _, r := range h.routes() {
		mux.Handle(r.path, only(r.method, r.handler))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		web.Error(w, http.StatusNotFound, "there is nothing at this path; /openapi.json tells what there is")
	})
	return mux
}

type route struct {
	method, path string
	handler      http.Handler
}

// routes are those of the OpenAPI document.
func (h *handlers) routes() []route {
	configure := http.Handler(h.route(h.configure))
	if h.Guard != nil {
		configure = h.Guard.Wrap(configure)
	}
	return []route{
		{http.MethodPost, "/api/config", configure},
		{http.MethodPost, "/api/send", h.route(h.send)},
		{http.MethodGet, "/openapi.json", web.Static("application/json", document)},
	}
}

// only lets one method pass, and HEAD with GET.
func only(method string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
			w.Header().Set("Allow", method)
			web.Error(w, http.StatusMethodNotAllowed, "this path has "+method+" only")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// route returns a handler that bounds requests in time, and answers errors.
func (h *handlers) route(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
		if r.URL.RawQuery != "" {
			h.fail(w, r, web.BadRequest("this path has no parameters in its URL: send a JSON object"))
			return
		}
		if err := handle(w, r); err != nil {
			h.fail(w, r, err)
		}
	}
}

type configBody struct {
	UserID     *string      `json:"userId,omitempty"`
	UserIDToo  *string      `json:"user_id,omitempty"`
	RateLimit  *web.Integer `json:"rateLimit,omitempty"`
	RateToo    *web.Integer `json:"rate_limit,omitempty"`
	TimeWindow *web.Integer `json:"timeWindow,omitempty"`
	TimeToo    *web.Integer `json:"time_window,omitempty"`
}

type savedBody struct {
	UserID          string `json:"userId"`
	RateLimit       int64  `json:"rateLimit"`
	TimeWindow      int64  `json:"timeWindow"`
	CurrentCount    int64  `json:"currentCount"`
	LastRefreshTime string `json:"lastRefreshTime"`
}

func (h *handlers) configure(w http.ResponseWriter, r *http.Request) error {
	var b configBody
	if err := web.ReadJSON(w, r, maxBody, &b); err != nil {
		return err
	}
	user, err := one("userId", b.UserID, "user_id", b.UserIDToo)
	limit, err2 := one("rateLimit", b.RateLimit, "rate_limit", b.RateToo)
	minutes, err3 := one("timeWindow", b.TimeWindow, "time_window", b.TimeToo)
	for _, err := range []error{err, err2, err3} {
		if err != nil {
			return err
		}
	}
	c := notify.Config{UserID: user, RateLimit: int64(limit), Minutes: int64(minutes)}
	if err := c.Check(); err != nil {
		return err
	}
	if err := h.places.take(user); err != nil {
		return err
	}
	defer h.places.giveBack(user)
	start, err := h.Gateway.Configure(r.Context(), c)
	if err != nil {
		return err
	}
	web.JSON(w, http.StatusOK, savedBody{UserID: c.UserID, RateLimit: c.RateLimit, TimeWindow: c.Minutes,
		LastRefreshTime: start.Format("2006-01-02T15:04:05.000000Z")})
	return nil
}

// one returns the value of a field that has two names.
func one[T any](name string, value *T, alias string, other *T) (none T, err error) {
	switch {
	case value != nil && other != nil:
		return none, &notify.FieldError{Field: name, Problem: "is there twice, also as " + alias}
	case value == nil && other == nil:
		return none, &notify.FieldError{Field: name, Problem: "is missing"}
	}
	return *cmp.Or(value, other), nil
}

type sendBody struct {
	UserID     *string `json:"userId,omitempty"`
	UserIDToo  *string `json:"user_id,omitempty"`
	Message    *string `json:"message,omitempty"`
	MessageToo *string `json:"payload,omitempty"`
}

type queuedBody struct {
	UserID    string `json:"userId"`
	Status    string `json:"status"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"remaining"`
}

func (h *handlers) send(w http.ResponseWriter, r *http.Request) error {
	begin := time.Now()
	user, accepted, err := h.doSend(w, r)
	h.Answer(outcome(err), time.Since(begin))
	if err == nil {
		web.JSON(w, http.StatusOK, queuedBody{user, "QUEUED", accepted.Limit, accepted.Remaining})
	}
	return err
}

func (h *handlers) doSend(w http.ResponseWriter, r *http.Request) (user string, a notify.Accepted, err error) {
	var b sendBody
	if err = web.ReadJSON(w, r, maxBody, &b); err != nil {
		return "", a, err
	}
	if user, err = one("userId", b.UserID, "user_id", b.UserIDToo); err != nil {
		return "", a, err
	}
	text, err := one("message", b.Message, "payload", b.MessageToo)
	if err != nil {
		return "", a, err
	}
	if err := errors.Join(notify.CheckUserID(user), notify.CheckText(text)); err != nil {
		return "", a, err
	}
	if err := h.places.take(user); err != nil {
		return "", a, err
	}
	defer h.places.giveBack(user)
	a, err = h.Gateway.Send(r.Context(), user, text)
	return user, a, err
}

//go:embed openapi.json
var document []byte

// retryUnavailable is when it is worth asking again after a 503.
const retryUnavailable = "1"

// fail answers with an error. The answer has no words of a database or a broker.
func (h *handlers) fail(w http.ResponseWriter, r *http.Request, err error) {
	var limited *notify.LimitedError
	switch outcome(err) {
	case notify.Invalid:
		if request, ok := errors.AsType[*web.RequestError](err); ok {
			web.Error(w, request.Status, request.Message)
		} else if field, ok := errors.AsType[*notify.FieldError](err); ok {
			web.Error(w, http.StatusBadRequest, field.Error())
		}
	case notify.Limited:
		errors.As(err, &limited)
		seconds := units.CeilSeconds(limited.Rest)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
		web.Error(w, http.StatusTooManyRequests, limited.Error()+"; the window ends in "+strconv.FormatInt(seconds, 10)+" s")
	case notify.Unknown:
		web.Error(w, http.StatusNotFound, err.Error()+"; POST /api/config makes one")
	case notify.Unavailable:
		h.logFailure(r, err)
		message := "the service is temporarily unavailable; send the request again"
		if errors.Is(err, notify.ErrBusy) {
			message = err.Error() + "; the service is temporarily unavailable, send the request again"
		}
		w.Header().Set("Retry-After", retryUnavailable)
		web.Error(w, http.StatusServiceUnavailable, message)
	default:
		h.logFailure(r, err)
		web.Error(w, http.StatusInternalServerError, "something failed inside the gateway; its log says what")
	}
}

// logFailure logs what is wrong with the gateway or what it needs. A client that is gone
// wants no answer.
func (h *handlers) logFailure(r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) || errors.Is(err, notify.ErrBusy) {
		return
	}
	if allowed, skipped := h.often.Allow(); allowed {
		h.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err, "skipped", skipped)
	}
}

// outcome returns what became of a request, by its error.
func outcome(err error) notify.Outcome {
	switch {
	case err == nil:
		return notify.Queued
	case errors.As(err, new(*web.RequestError)), errors.As(err, new(*notify.FieldError)):
		return notify.Invalid
	case errors.As(err, new(*notify.LimitedError)):
		return notify.Limited
	case errors.Is(err, notify.ErrNoConfig):
		return notify.Unknown
	case errors.As(err, new(*notify.UnavailableError)), errors.Is(err, notify.ErrBusy),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return notify.Unavailable
	}
	return notify.Failed
}

// places bound the requests under way. A request takes a place when its body has arrived, as clients may send
// it slowly. One user gets a quarter of the places at most, as the requests of a user wait for each other.
type places struct {
	most int

	mu    sync.Mutex
	taken int
	users map[string]int // requests under way
}

var errBusyUser = fmt.Errorf("%w for this user", notify.ErrBusy)

// take takes a place for a request of a user, until giveBack.
func (p *places) take(user string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.taken >= p.most:
		return notify.ErrBusy
	case p.users[user] >= max(1, p.most/4):
		return errBusyUser
	}
	p.taken++
	p.users[user]++
	return nil
}

func (p *places) giveBack(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.users[user]--; p.users[user] == 0 {
		delete(p.users, user)
	}
}
