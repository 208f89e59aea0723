package testenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/net/websocket"
)

// params are the parameters of a command.
type params map[string]any

// devTools is a connection to a browser that speaks the Chrome DevTools Protocol:
// JSON over a WebSocket, commands with a number and their answers, and events of
// the pages, which have a session each.
type devTools struct {
	ws   *websocket.Conn
	done chan struct{} // closed when the connection has ended

	sending sync.Mutex

	mu        sync.Mutex
	last      int // number of the last command
	answers   map[int]chan devToolsMessage
	listeners map[string]func(method string, raw json.RawMessage)
	err       error // why the connection has ended
}

type devToolsMessage struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
		Data    string `json:"data"`
	} `json:"error,omitempty"`
}

// devToolsOrigin is who the client says it is: the browser wants to know that it is
// no page of somebody else, and has to let this one in.
const devToolsOrigin = "http://127.0.0.1"

func dialDevTools(address string) (*devTools, error) {
	ws, err := websocket.Dial(address, "", devToolsOrigin)
	if err != nil {
		return nil, fmt.Errorf("connect to the browser at %s: %w", address, err)
	}
	ws.MaxPayloadBytes = 256 << 20
	d := &devTools{ws: ws, done: make(chan struct{}), answers: map[int]chan devToolsMessage{},
		listeners: map[string]func(string, json.RawMessage){}}
	go d.receive()
	return d, nil
}

// receive hands out messages until the connection ends.
func (d *devTools) receive() {
	defer close(d.done)
	for {
		var m devToolsMessage
		if err := websocket.JSON.Receive(d.ws, &m); err != nil {
			d.mu.Lock()
			d.err = fmt.Errorf("the connection to the browser has ended: %w", err)
			d.mu.Unlock()
			return
		}
		d.mu.Lock()
		answer, listener := d.answers[m.ID], d.listeners[m.SessionID]
		delete(d.answers, m.ID)
		d.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case m.Method != "" && listener != nil:
			listener(m.Method, m.Params)
		}
	}
}

// listen has f called with each event of a session.
func (d *devTools) listen(session string, f func(method string, raw json.RawMessage)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listeners[session] = f
}

// failed returns why the connection has ended, or nil.
func (d *devTools) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// call sends a command and waits for its answer, which goes into result.
func (d *devTools) call(session, method string, args params, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	answer := make(chan devToolsMessage, 1)
	d.mu.Lock()
	d.last++
	id := d.last
	d.answers[id] = answer
	d.mu.Unlock()
	if err := d.send(devToolsMessage{ID: id, SessionID: session, Method: method, Params: raw}); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m := <-answer:
		return answered(m, method, result)
	case <-d.done:
		return fmt.Errorf("%s: %w", method, d.failed())
	case <-time.After(browserAskLimit):
		return fmt.Errorf("%s: no answer within %v", method, browserAskLimit)
	}
}

func (d *devTools) send(m devToolsMessage) error {
	d.sending.Lock()
	defer d.sending.Unlock()
	return websocket.JSON.Send(d.ws, m)
}

func answered(m devToolsMessage, method string, result any) error {
	if m.Error != nil {
		return fmt.Errorf("%s: %w", method, errors.New(m.Error.Message+" "+m.Error.Data))
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		return fmt.Errorf("%s: the answer %.200s: %w", method, m.Result, err)
	}
	return nil
}

// close ends the connection and waits for the goroutine that reads it.
func (d *devTools) close() {
	_ = d.ws.Close()
	<-d.done
}
