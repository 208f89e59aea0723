package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

type embedded struct {
	Name  string   `json:"name"`
	Empty []string `json:"empty,omitempty"`
}

type row struct {
	Text string `json:"text"`
	N    *int   `json:"n,omitempty"`
}

type everything struct {
	embedded
	List    []row            `json:"list"`
	Nil     []row            `json:"nil"`
	None    []row            `json:"none,omitempty"`
	Bytes   []byte           `json:"bytes"`
	Raw     json.RawMessage  `json:"raw,omitempty"`
	NoRaw   json.RawMessage  `json:"noRaw,omitempty"`
	Any     []any            `json:"any"`
	Map     map[string][]int `json:"map"`
	At      time.Time        `json:"at"`
	Never   time.Time        `json:"never,omitzero"`
	Pointer *row             `json:"pointer"`
	Null    *row             `json:"null"`
	Made    Rows             `json:"made"`
	Plain   bool
	Hidden  string `json:"-"`
	private string
	Last    float64 `json:"last,omitempty"`
}

// TestAnswersAreAsMarshalled: an answer in parts is what json.Marshal makes of it.
func TestAnswersAreAsMarshalled(t *testing.T) {
	n := 3
	many := make([]row, 5000)
	for i := range many {
		many[i] = row{Text: fmt.Sprint(i, "<&>\u2028ä", strings.Repeat("x", i%50)), N: &n}
	}
	for _, v := range []any{
		nil, 1, "text", []row{}, many, map[string]int{"a": 1}, struct{}{}, &row{}, (*row)(nil), time.Unix(0, 0).UTC(),
		everything{}, &everything{
			embedded: embedded{"<name>", []string{"a"}},
			List:     many, None: many[:1], Bytes: []byte("abc"),
			Raw: json.RawMessage(` {"a": [1, 2]}`),
			Any: []any{1, "b", nil, row{}}, Map: map[string][]int{"k": {1}},
			At: time.Unix(1, 2).UTC(), Never: time.Unix(3, 4).UTC(), Pointer: &row{}, private: "p", Hidden: "h", Last: 1.5,
			Made: RowsOf(many, func(r row) row { return r })},
		struct {
			Rows Rows `json:"rows"`
		}{}, ErrorOf(404, "x"),
	} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got := httptest.NewRecorder()
		JSON(got, 200, v)
		if got.Body.String() != string(want)+"\n" {
			t.Errorf("%T: %.300s, want %.300s", v, got.Body, want)
		}
	}
}

// sizes notes how much is written at a time, and fails at last.
type sizes struct {
	bytes.Buffer
	most, left int
}

func (s *sizes) Write(p []byte) (int, error) {
	s.most = max(s.most, len(p))
	if s.left -= len(p); s.left < 0 {
		return 0, errors.New("full")
	}
	return s.Buffer.Write(p)
}

// TestListsAreWrittenRowByRow: rows are made as they are written, the text is there of a few at a time, and nothing is
// made for a client that is gone.
func TestListsAreWrittenRowByRow(t *testing.T) {
	list := make([]string, 10_000)
	made := 0
	answer := struct {
		Rows Rows `json:"rows"`
	}{RowsOf(list, func(string) string { made++; return strings.Repeat("x", 100) })}
	to := &sizes{left: 10 << 20}
	if err := newEncoder(to).answer(answer); err != nil || made != len(list) || to.most > chunk+200 {
		t.Errorf("%v: %d rows, %d bytes at a time", err, made, to.most)
	}
	made, to = 0, &sizes{left: 100_000}
	if err := newEncoder(to).answer(answer); err == nil || made > 1500 {
		t.Errorf("%v: %d rows are made for a client that is gone", err, made)
	}
}

// TestBrokenAnswers: a mistake in our own types is a status 500, or breaks the answer off.
func TestBrokenAnswers(t *testing.T) {
	got := httptest.NewRecorder()
	JSON(got, 200, struct{ F func() }{})
	if got.Code != 500 || got.Body.String() != "{}\n" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	defer func() {
		if recover() == nil {
			t.Error("an answer that breaks off ends as a whole one does")
		}
	}()
	JSON(httptest.NewRecorder(), 200, struct{ List []any }{[]any{strings.Repeat("x", chunk), func() {}}})
}
