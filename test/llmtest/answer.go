package llmtest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A Plan says what a call uses and how it ends. The client sends it along, in the header PlanHeader.
type Plan struct {
	// Input and Output are tokens. A client's own limit on output cuts Output, as it does for real models.
	Input, Output int64
	// Takes is how long the answer takes.
	Takes time.Duration
	// End is how the call ends; "" is well.
	End End
}

// An End is how a call ends.
type End string

// Ways to end. What a model has generated until a stream is cut was spent.
const (
	Fails     End = "fails"     // status 500, nothing spent
	Refuses   End = "refuses"   // status 400, nothing spent
	Cut       End = "cut"       // the connection breaks in the middle of the answer
	Silent    End = "silent"    // the answer has no usage
	Malformed End = "malformed" // usage is there, but not as JSON
	Overloads End = "overloads" // a stream that ends with an error, as Anthropic's do
)

// Headers of calls. The user is whose tokens are spent.
const (
	PlanHeader = "x-mock-plan"
	UserHeader = "x-user"
)

// An api is how a provider writes answers: whole ones, and the events of streams.
type api struct {
	always bool // streams have usage without being asked for it
	usage  func(input, output int64) string
	whole  func(text, usage string) string
	begin  func(*answer) []string
	piece  func(*answer) string
	end    func(*answer) []string
}

// pieces is how many parts the text of an answer has.
const pieces = 8

// An answer is being given.
type answer struct {
	Plan
	speak  *api
	w      *http.ResponseController
	out    http.ResponseWriter
	done   <-chan struct{}
	stream bool
	usage  bool  // the answer has it
	given  int64 // pieces
	cut    bool
}

// spent is what was generated: all of it, or the part before the end.
func (a *answer) spent() int64 { return a.Input + a.Output*a.given/pieces }

var errCut = errors.New("cut")

// give gives the answer as an API does.
func (a *answer) give() {
	var err error
	if a.stream {
		a.out.Header().Set("Content-Type", "text/event-stream")
		err = a.events()
	} else {
		a.out.Header().Set("Content-Type", "application/json")
		err = a.whole()
	}
	a.cut = err != nil
}

func (a *answer) whole() error {
	for range pieces {
		if err := a.pause(); err != nil {
			return err
		}
	}
	return a.write(a.speak.whole(a.text(), a.report()))
}

func (a *answer) events() error {
	for _, e := range a.speak.begin(a) {
		if err := a.write(e); err != nil {
			return err
		}
	}
	for range pieces {
		if err := a.pause(); err != nil {
			return err
		}
		if err := a.write(a.speak.piece(a)); err != nil {
			return err
		}
		if a.End == Overloads && a.given > pieces/2 {
			return a.write("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n")
		}
	}
	for _, e := range a.speak.end(a) {
		if err := a.write(e); err != nil {
			return err
		}
	}
	return nil
}

// pause generates a piece, if the client is still there.
func (a *answer) pause() error {
	if a.End == Cut && a.given > pieces/2 {
		return errCut
	}
	select {
	case <-a.done:
		return errCut
	case <-time.After(a.Takes / pieces):
		a.given++
		return nil
	}
}

func (a *answer) write(text string) error {
	if _, err := io.WriteString(a.out, text); err != nil {
		return err
	}
	if !a.stream {
		return nil
	}
	return a.w.Flush()
}

// text has what could be taken for usage, but is not: it is text.
func (a *answer) text() string {
	return fmt.Sprintf(`piece %d of \"usage\": {\"total_tokens\": 7, \"output_tokens\": 7} `, a.given)
}

// report is the usage as the API writes it.
func (a *answer) report() string {
	switch {
	case !a.usage:
		return "null"
	case a.End == Malformed:
		return `{"total_tokens": "many", `
	}
	return a.speak.usage(a.Input, a.Output*a.given/pieces)
}
