// Package webtest sends requests to HTTP handlers in tests, and checks their answers: the form
// of errors, and what an OpenAPI document says.
package webtest

import (
	"bytes"
	"context"
	"encoding/json"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// An Answer is what a request got.
type Answer struct {
	Code   int
	Header http.Header
	Body   string
}

// Send sends a request to h. A body that is not empty is sent as JSON; header is pairs of names
// and values.
func Send(t testing.TB, ctx context.Context, h http.Handler, method, target, body string, header ...string) Answer {
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return Read(t, w.Result())
}

// Read reads an answer to its end.
func Read(t testing.TB, r *http.Response) Answer {
	t.Helper()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{r.StatusCode, r.Header, string(body)}
}

// Is checks the status. An answer with an error must have the form of all errors; those of slots may say firstFree.
func (a Answer) Is(t testing.TB, code int) Answer {
	t.Helper()
	if a.Code != code {
		t.Fatalf("status %d, want %d; the answer is %s", a.Code, code, a.Body)
	}
	if code < 400 {
		return a
	}
	e := a.Object(t)
	delete(e, "firstFree")
	stamp, _ := e["timestamp"].(string)
	if _, err := time.Parse("2006-01-02T15:04:05Z", stamp); err != nil || len(e) != 4 || e["status"] != float64(code) ||
		e["error"] != http.StatusText(code) || e["message"] == "" || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the answer %s (%s) does not have the form of errors", a.Body, a.Header.Get("Content-Type"))
	}
	return a
}

// Says checks the message of an error.
func (a Answer) Says(t testing.TB, want string) Answer {
	t.Helper()
	if message, _ := a.Object(t)["message"].(string); !strings.Contains(message, want) {
		t.Errorf("the message is %q, want %q in it", message, want)
	}
	return a
}

// Has checks that a text is in the body.
func (a Answer) Has(t testing.TB, want string) Answer {
	t.Helper()
	if !strings.Contains(a.Body, want) {
		t.Errorf("the answer is %s, want %q in it", a.Body, want)
	}
	return a
}

// Object returns the body, which must be a JSON object.
func (a Answer) Object(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.Body), &v); err != nil {
		t.Fatalf("the answer %q is not a JSON object: %v", a.Body, err)
	}
	return v
}

// Brightness is the mean brightness of a screenshot in PNG, from 0 to 255.
func Brightness(t testing.TB, shot []byte) int {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	sum, n := 0, 0
	for y := 0; y < img.Bounds().Dy(); y += 7 {
		for x := 0; x < img.Bounds().Dx(); x += 7 {
			r, g, b, _ := img.At(x, y).RGBA()
			sum += int(r+g+b) / 3 >> 8
			n++
		}
	}
	return sum / n
}
