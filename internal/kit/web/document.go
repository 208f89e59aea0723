package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
)

// Document returns a handler that serves OpenAPI documents as one. What they say about the same must be
// the same, apart from info, which is the first one's; so components may be in each that uses them.
func Document(documents ...[]byte) (http.Handler, error) {
	whole := map[string]any{}
	for i, text := range documents {
		var d map[string]any
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&d); err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		if whole["info"] != nil {
			d["info"] = whole["info"]
		}
		if tags, ok := whole["tags"].([]any); ok {
			more, _ := d["tags"].([]any)
			d["tags"] = append(tags, more...)
			delete(whole, "tags")
		}
		if at := merge(whole, d); at != "" {
			return nil, fmt.Errorf("document %d: %s is not as in those before", i, at)
		}
	}
	text, err := json.MarshalIndent(whole, "", "  ")
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		only := []Route{{Method: http.MethodGet, Path: r.URL.EscapedPath(),
			Handle: func(w http.ResponseWriter, _ *http.Request, _ Params) error {
				head := w.Header()
				head.Set("Content-Type", "application/json")
				head.Set("X-Content-Type-Options", "nosniff")
				head.Set("Cache-Control", "no-cache")
				_, _ = w.Write(text) // fails only if the client is gone
				return nil
			}}}
		if err, ok := Dispatch(only, r.URL.Path, w, r).(*RequestError); ok {
			Error(w, err.Status, err.Message)
		}
	}), nil
}

// merge adds to whole what it lacks of more, and returns the name of what differs: "" if nothing does.
func merge(whole, more map[string]any) string {
	for name, value := range more {
		old, there := whole[name]
		inside, isMap := value.(map[string]any)
		oldInside, wasMap := old.(map[string]any)
		switch {
		case !there:
			whole[name] = value
		case isMap && wasMap:
			if at := merge(oldInside, inside); at != "" {
				return name + "." + at
			}
		case !reflect.DeepEqual(old, value):
			return name
		}
	}
	return ""
}
