package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"
)

// ReadJSON reads the request's body, at most limit bytes, which must arrive by the
// deadline of the request's context, into v, a pointer to a
// struct whose fields are strings, Integers, booleans, structs, pointers to and
// slices of these, or json.RawMessage.
//
// It is strict, so that what a client sends is what it meant: names must be spelt
// as the tags have them, none twice; fields whose tags have no option (omitempty, omitzero) must be there;
// only fields that are pointers may be null, which is the same as not being there; text is valid Unicode,
// as else two different ids could become one; and nothing follows the object. Errors are a *RequestError;
// those about the content name the field and the place.
func ReadJSON(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	return read(w, r, limit, v, nil)
}

// ReadJSONIgnoring is ReadJSON for clients that send more than is asked for: it
// ignores unknown fields and returns their names, at most a few, each once and
// without the indexes of arrays. A field that looks like the misspelt name of one
// that is missing is an error.
func ReadJSONIgnoring(w http.ResponseWriter, r *http.Request, limit int64, v any) (names []string, err error) {
	var g ignored
	err = read(w, r, limit, v, &g)
	return g.names, err
}

func read(w http.ResponseWriter, r *http.Request, limit int64, v any, ignored *ignored) error {
	if by, ok := r.Context().Deadline(); ok {
		// Also what is left of a body that is refused must be here by then. Not every
		// ResponseWriter can do this, such as those of tests.
		_ = http.NewResponseController(w).SetReadDeadline(by)
	}
	if err := checkContentType(r.Header); err != nil {
		return err
	}
	body, err := ReadBody(w, r, limit)
	if err != nil {
		return err
	}
	if gone := InTurn(r.Context(), len(body), func() { err = decode(body, v, ignored) }); gone != nil {
		return gone
	}
	return err
}

// ReadBody reads the request's body, at most limit bytes. Errors are a *RequestError.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, bodyError(err, limit)
	}
	return body, nil
}

func checkContentType(h http.Header) error {
	kind, param, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := param["charset"]
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return Refuse(http.StatusUnsupportedMediaType, "the header Content-Type is %q, want application/json",
			h.Get("Content-Type"))
	}
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return Refuse(http.StatusUnsupportedMediaType, "the header Content-Encoding is %q, but bodies must not be encoded", e)
	}
	return nil
}

func bodyError(err error, limit int64) error {
	switch {
	case errors.Is(err, errNoRoom):
		return errNoRoom
	case errors.As(err, new(*http.MaxBytesError)):
		return Refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Refuse(http.StatusRequestTimeout, "the body did not arrive in time")
	}
	return BadRequest("the body could not be read to its end")
}

// Decode reads a text of JSON as [ReadJSON] reads the body of a request.
func Decode(text []byte, v any) error { return decode(text, v, nil) }

func decode(body []byte, v any, ignored *ignored) error {
	if !utf8.Valid(body) {
		return BadRequest("the body is not valid UTF-8")
	}
	if len(strings.TrimLeft(string(body), " \t\r\n")) == 0 {
		return BadRequest("the body is empty, want a JSON object")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return syntaxError(err, len(body))
	}
	if at := loneSurrogate(body); at >= 0 {
		return BadRequest("the body has half of a surrogate pair at byte %d: write the whole character", at)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if ignored != nil {
		ignored.body = body
	}
	if err := (checker{Decoder: d, ignored: ignored}).value("", reflect.TypeOf(v).Elem()); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil { // the checker has let something pass
		return BadRequest("the body does not fit: %v", err)
	}
	return nil
}

func syntaxError(err error, length int) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return BadRequest("the body is not a JSON object: %v, at byte %d of %d", err, syntax.Offset, length)
	}
	return BadRequest("the body is not a JSON object: %v", err)
}
