package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

type inner struct {
	ID   string `json:"id"`
	Note string `json:"note,omitempty"`
}

type outer struct {
	Name  string          `json:"name"`
	Count Integer         `json:"count,omitempty"`
	Flag  *bool           `json:"flag,omitempty"`
	List  []inner         `json:"list,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
}

func readOuter(t *testing.T, body string, limit int64, header ...string) (outer, *RequestError) {
	t.Helper()
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	var v outer
	err := ReadJSON(httptest.NewRecorder(), r, limit, &v)
	var re *RequestError
	if err != nil && !errors.As(err, &re) {
		t.Fatalf("the error %v is no RequestError", err)
	}
	return v, re
}

func TestReadJSONAccepts(t *testing.T) {
	v, err := readOuter(t, " {\"name\":\"\\ud83d\\ude00 \\\\ud83d é\", \"count\":-3, \"flag\":true,\n"+
		`"list":[{"id":"a"},{"id":"b","note":"n"}], "raw":{"any":[1.5,null,{"x":"y"}]}} `, 1000,
		"Content-Type", "application/json; charset=UTF-8")
	if err != nil {
		t.Fatal(err)
	}
	if v.Name != "😀 \\ud83d é" || v.Count != -3 || v.Flag == nil || !*v.Flag || len(v.List) != 2 ||
		v.List[1].Note != "n" || string(v.Raw) != `{"any":[1.5,null,{"x":"y"}]}` {
		t.Errorf("read %+v", v)
	}
}

// Some clients write null for what they leave out.
func TestNullIsTheSameAsNothing(t *testing.T) {
	if v, err := readOuter(t, `{"name":"a","flag":null}`, 100); err != nil || v.Flag != nil {
		t.Errorf("read %+v, %v", v, err)
	}
}

// Clients may send more than is asked for; a misspelt field is no such thing.
func TestReadJSONIgnoring(t *testing.T) {
	for _, c := range []struct{ name, body, ignored, refused string }{
		{"nothing else", `{"name":"a"}`, "", ""},
		{"one", `{"prio":{"x":[1,null]},"name":"a"}`, "prio", ""},
		{"inside, each once", `{"name":"a","list":[{"id":"x","z":1},{"z":2,"id":"y","more":null}],"z":3}`,
			"list[].z list[].more z", ""},
		{"like one that is there", `{"nam":"b","name":"a"}`, "nam", ""},
		{"in other letters than one that is there", `{"name":"a","NAME":"b","n\u0041me":"c",` +
			`"list":[{"id":"x","ID":"y"}]}`, "NAME nAme list[].ID", ""},
		{"in other letters, by a fold of Unicode", `{"name":"a","list":[],"Li\u017ft":[{"id":"x"}],` + "\"li\u017ft\" : 1}",
			"Li\u017ft li\u017ft", ""},
		{"too many to name, and one in other letters", `{"name":"a","q1":1,"q2":1,"q3":1,"q4":1,"q5":1,"q6":1,"q7":1,` +
			`"q8":1,"q9":1,"Name":"b"}`, "q1 q2 q3 q4 q5 q6 q7 q8 …", ""},
		{"too many to name", `{"name":"a","q1":1,"q2":1,"q3":1,"q4":1,"q5":1,"q6":1,"q7":1,"q8":1,"q9":1,"q10":1}`,
			"q1 q2 q3 q4 q5 q6 q7 q8 …", ""},
		{"a long name", `{"name":"a","` + strings.Repeat("n", 300) + `":1}`, strings.Repeat("n", 120) + "…", ""},
		{"misspelt, required", `{"nam":"a"}`, "", `nam is an unknown field; did you mean "name"? (at byte 6)`},
		{"misspelt, optional", `{"name":"a","Flag":true,"x":1}`, "", `Flag is an unknown field; did you mean "flag"?`},
		{"twice inside one", `{"name":"a","prio":{"x":1,"x":2}}`, "", "prio.x is there twice"},
		{"missing", `{"prio":1}`, "", "name is missing"},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		var v outer
		names, err := ReadJSONIgnoring(httptest.NewRecorder(), r, 1000, &v)
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %q", c.name, err, c.refused)
			}
		case err != nil || strings.Join(names, " ") != c.ignored || v.Name != "a" || len(v.List) > 0 && v.List[0].ID != "x":
			t.Errorf("%s: read %+v, ignored %q, %v; want %q", c.name, v, names, err, c.ignored)
		}
	}
}

// TestDeepBodiesAreCheap: what is ignored of a body is walked through all the same, and a body of many
// levels must not need a stack, nor paths, many times its size.
func TestDeepBodiesAreCheap(t *testing.T) {
	nested := func(open, end string, levels int) string {
		return `{"name":"a","more":` + strings.Repeat(open, levels) + "1" + strings.Repeat(end, levels) + "}"
	}
	member := `{"` + strings.Repeat("x", 8<<10) + `":`
	for _, c := range []struct {
		name, body, says string
		mib              uint64
	}{
		{"arrays", nested("[", "]", maxDepth-1), "", 1},
		{"one array too many", nested("[", "]", maxDepth), "more[0][0][0]", 1},
		{"many arrays", nested("[", "]", 9900), "is in more than 63 objects and arrays", 1},
		{"objects with long names", nested(member, "}", maxDepth-1), "", 10},
		{"an array under a long name", `{"name":"a","` + member[2:] + "[" + strings.Repeat("1,", 10_000) + "1]}", "", 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			var v struct {
				Name string `json:"name"`
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := ReadJSONIgnoring(httptest.NewRecorder(), r, 1<<20, &v)
			runtime.ReadMemStats(&after)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib >= c.mib {
				t.Errorf("%d bytes need %d MiB", len(c.body), mib)
			}
		})
	}
}

func TestIntegersMayBeWrittenAsFloats(t *testing.T) {
	for text, want := range map[string]Integer{
		"0": 0, "-0": 0, "176.0": 176, "1e2": 100, "-3": -3, "999999999999999": 999_999_999_999_999, "1.5e1": 15,
		"9999999999": 9_999_999_999,
	} {
		if v, err := readOuter(t, `{"name":"a","count":`+text+`}`, 100); err != nil || v.Count != want {
			t.Errorf("%s is %d, %v, want %d", text, v.Count, err, want)
		}
	}
}

func TestReadJSONRefuses(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"nothing", "", "empty"},
		{"space", " \n", "empty"},
		{"no JSON", `{"name":"a",}`, "at byte 13 of 13"},
		{"cut short", `{"name":"a"`, "unexpected end"},
		{"trailing data", `{"name":"a"} {}`, "after top-level value"},
		{"an array", `[]`, "the body must be an object, not an array"},
		{"a string", `"x"`, "the body must be an object, not a string"},
		{"null", `null`, "the body must be an object, not null"},
		{"unknown field", `{"name":"a","cuont":1}`, `cuont is an unknown field; did you mean "count"? (at byte 19)`},
		{"another case", `{"Name":"a"}`, `did you mean "name"?`},
		{"unknown inside", `{"name":"a","list":[{"id":"x"},{"id":"y","z":1}]}`, "list[1].z is an unknown field"},
		{"twice", `{"name":"a","name":"b"}`, "name is there twice"},
		{"twice inside what others check", `{"name":"a","raw":{"x":[{"y":1,"y":2}]}}`, "raw.x[0].y is there twice"},
		{"missing", `{"count":1}`, "name is missing"},
		{"missing inside", `{"name":"a","list":[{"note":"x"}]}`, "list[0].id is missing"},
		{"null field", `{"name":null}`, "name must be a string, not null"},
		{"null list", `{"name":"a","list":null}`, "list must be an array, not null"},
		{"null number", `{"name":"a","count":null}`, "count must be a whole number of at most 15 digits, not null"},
		{"number for string", `{"name":7}`, "name must be a string, not the number 7"},
		{"string for number", `{"name":"a","count":"1"}`, "count must be a whole number of at most 15 digits, not a string"},
		{"fraction", `{"name":"a","count":1.5}`, "count must be a whole number"},
		{"huge exponent", `{"name":"a","count":1e999999999}`, "not the number 1e999999999"},
		{"tiny exponent", `{"name":"a","count":1e-3}`, "not the number 1e-3"},
		{"too large a number", `{"name":"a","count":1000000000000000}`, "count must be a whole number"},
		{"object for array", `{"name":"a","list":{}}`, "list must be an array, not an object"},
		{"array for string", `{"name":["a"]}`, "name must be a string, not an array"},
		{"boolean for number", `{"name":"a","count":true}`, "not true"},
		{"not UTF-8", "{\"name\":\"\xff\"}", "not valid UTF-8"},
		{"high half", `{"name":"\ud83d"}`, "half of a surrogate pair at byte 9"},
		{"high half before another", `{"name":"\ud83d\u0041"}`, "half of a surrogate pair"},
		{"low half", `{"name":"\\\ude00"}`, "half of a surrogate pair at byte 11"},
		{"a long name", `{"` + strings.Repeat("n", 300) + `":1}`, strings.Repeat("n", 120) + "… is an unknown field"},
	} {
		if _, err := readOuter(t, c.body, 1000); err == nil {
			t.Errorf("%s: accepted", c.name)
		} else if err.Status != 400 || !strings.Contains(err.Message, c.want) {
			t.Errorf("%s: %d %q, want 400 with %q", c.name, err.Status, err.Message, c.want)
		}
	}
}

func TestReadJSONRefusesBySizeAndKind(t *testing.T) {
	const body = `{"name":"abc"}`
	if _, err := readOuter(t, body, int64(len(body))); err != nil {
		t.Errorf("a body of just the limit: %v", err)
	}
	if _, err := readOuter(t, body, int64(len(body))-1); err == nil || err.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of a byte more than the limit: %v", err)
	}
	for _, header := range [][]string{
		{"Content-Type", ""}, {"Content-Type", "text/plain"}, {"Content-Type", "application/x-www-form-urlencoded"},
		{"Content-Type", "application/json; charset=latin1"}, {"Content-Type", "application/json;;"},
		{"Content-Encoding", "gzip"},
	} {
		if _, err := readOuter(t, body, 100, header...); err == nil || err.Status != http.StatusUnsupportedMediaType {
			t.Errorf("%v: %v, want 415", header, err)
		}
	}
}

// FuzzDecode: whatever is accepted reads back as the same, by the standard
// library's own rules, and nothing panics.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","count":1,"flag":false,"list":[{"id":"x"}],"raw":{"a":[]}}`))
	f.Add([]byte(`{"name":"\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var v, again outer
		if decode(body, &v, nil) != nil {
			return
		}
		if strings.ContainsRune(v.Name, '\uFFFD') && !strings.Contains(string(body), "\uFFFD") &&
			!strings.Contains(strings.ToLower(string(body)), `\ufffd`) {
			t.Fatalf("%q has become %q", body, v.Name)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := decode(data, &again, nil); err != nil {
			t.Fatalf("%q was accepted, but not what it means, %q: %v", body, data, err)
		}
	})
}
