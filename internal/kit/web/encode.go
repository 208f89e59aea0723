package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"reflect"
	"strings"
)

// chunk is about how many bytes of an answer are text at a time.
const chunk = 16 << 10

// Rows are a list in an answer whose elements are made as they are written.
type Rows struct {
	n  int
	of func(i int) any
}

// RowsOf returns a list of what row makes of each element.
func RowsOf[S, T any](list []S, row func(S) T) Rows {
	return Rows{len(list), func(i int) any { return row(list[i]) }}
}

// MarshalJSON implements json.Marshaler.
func (r Rows) MarshalJSON() ([]byte, error) {
	all := make([]any, r.n)
	for i := range all {
		all[i] = r.of(i)
	}
	return json.Marshal(all)
}

// An encoder writes an answer as json.Marshal would, but the lists in it row by row: text is there of about a chunk at
// a time. Only lists that are fields of the answer itself are written so.
type encoder struct {
	to   io.Writer
	sent bool // something was written to it
	buf  bytes.Buffer
	json *json.Encoder // to buf
}

func newEncoder(to io.Writer) *encoder {
	e := &encoder{to: to}
	e.json = json.NewEncoder(&e.buf)
	return e
}

// answer writes v and a line end.
func (e *encoder) answer(v any) error {
	of := reflect.ValueOf(v)
	for of.Kind() == reflect.Pointer && !of.IsNil() {
		of = of.Elem()
	}
	_, own := v.(json.Marshaler)
	if of.Kind() != reflect.Struct || own {
		if err := e.value(v); err != nil {
			return err
		}
	} else {
		e.buf.WriteByte('{')
		if _, err := e.fields(of, ""); err != nil {
			return err
		}
		e.buf.WriteByte('}')
	}
	e.buf.WriteByte('\n')
	return e.send()
}

// send writes what is in the buffer.
func (e *encoder) send() error {
	e.sent = true
	_, err := e.to.Write(e.buf.Bytes())
	e.buf.Reset()
	return err
}

// value appends v, and sends what there is if that is enough.
func (e *encoder) value(v any) error {
	if err := e.json.Encode(v); err != nil {
		return err
	}
	e.buf.Truncate(e.buf.Len() - 1) // the line end
	if e.buf.Len() < chunk {
		return nil
	}
	return e.send()
}

// fields appends the fields of a struct, those of embedded ones among them, the first after the text separator. It
// returns what is to stand before the next field.
func (e *encoder) fields(of reflect.Value, separator string) (_ string, err error) {
	for i := range of.NumField() {
		field, at := of.Type().Field(i), of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "" && at.Kind() == reflect.Struct:
			if separator, err = e.fields(at, separator); err != nil {
				return "", err
			}
			continue
		case !field.IsExported() || name == "-" && options == "":
			continue
		case strings.Contains(options, "omitempty") && empty(at), strings.Contains(options, "omitzero") && at.IsZero():
			continue
		}
		e.buf.WriteString(separator + `"` + cmp.Or(name, field.Name) + `":`)
		separator = ","
		if err := e.field(at); err != nil {
			return "", err
		}
	}
	return separator, nil
}

// empty is what omitempty means.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// field appends the value of a field: a list row by row.
func (e *encoder) field(at reflect.Value) error {
	v := at.Interface()
	rows, made := v.(Rows)
	_, own := v.(json.Marshaler)
	switch {
	case made:
	case own, at.Kind() != reflect.Slice, at.IsNil(), at.Type().Elem().Kind() == reflect.Uint8:
		return e.value(v)
	default:
		rows = Rows{at.Len(), func(i int) any { return at.Index(i).Interface() }}
	}
	e.buf.WriteByte('[')
	for i := range rows.n {
		if i > 0 {
			e.buf.WriteByte(',')
		}
		if err := e.value(rows.of(i)); err != nil {
			return err
		}
	}
	e.buf.WriteByte(']')
	return nil
}
