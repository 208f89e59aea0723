package web

import (
	"fmt"
	"net/http"
	"time"
)

// ErrorBody is the form of every error that an HTTP endpoint answers with.
type ErrorBody struct {
	Status    int    `json:"status"`    // the HTTP status
	Error     string `json:"error"`     // its name, such as "Not Found"
	Message   string `json:"message"`   // what is wrong and what to do
	Timestamp string `json:"timestamp"` // UTC, RFC 3339, seconds
}

// Error answers with the status and an ErrorBody. Headers that belong to the
// status, such as Retry-After, must be set before.
func Error(w http.ResponseWriter, status int, message string) {
	JSON(w, status, ErrorOf(status, message))
}

// ErrorOf is the body that Error answers with.
func ErrorOf(status int, message string) ErrorBody {
	return ErrorBody{
		Status:    status,
		Error:     http.StatusText(status),
		Message:   message,
		Timestamp: time.Now().UTC().Format(time.RFC3339),
	}
}

// JSON answers with the status and v, which must be something that can be marshalled. Lists in it are written row by
// row. Answers are of the moment: caches must not keep them.
func JSON(w http.ResponseWriter, status int, v any) {
	begun := &statusWriter{w: w, status: status}
	e := newEncoder(begun)
	err := e.answer(v)
	switch {
	case err == nil || begun.err != nil: // if it cannot be written the client is gone
	case e.sent: // a mistake in our own types, too late for another status
		panic(http.ErrAbortHandler)
	default:
		begun.status = http.StatusInternalServerError
		_, _ = begun.Write([]byte("{}\n")) // fails only if the client is gone
	}
}

// A statusWriter sends the header of an answer in JSON with its first bytes.
type statusWriter struct {
	w      http.ResponseWriter
	status int // 0 once it is sent
	err    error
}

// Write implements io.Writer.
func (s *statusWriter) Write(p []byte) (n int, err error) {
	if s.status != 0 {
		h := s.w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		s.w.WriteHeader(s.status)
		s.status = 0
	}
	n, s.err = s.w.Write(p)
	return n, s.err
}

// A RequestError says what is wrong with a request, and with which status to
// answer.
type RequestError struct {
	Status  int
	Message string
}

func (e *RequestError) Error() string { return e.Message }

// Refuse returns a *RequestError.
func Refuse(status int, format string, args ...any) error {
	return &RequestError{Status: status, Message: fmt.Sprintf(format, args...)}
}

// BadRequest is Refuse with the status 400.
func BadRequest(format string, args ...any) error {
	return Refuse(http.StatusBadRequest, format, args...)
}
