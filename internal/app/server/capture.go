package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/headgate-rls/headgate/internal/app/capture"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// openCapture opens the file of --capture. Without one, requests are captured for those only who ask for it.
func openCapture(_ context.Context, s *server) (*addition, error) {
	var c capture.Config
	if s.conf.Capture != "" {
		c, _ = capture.Parse(s.conf.Capture) // checked
	}
	hub, err := capture.New(c, s.log)
	if err != nil {
		return nil, fmt.Errorf("--capture: %w", err)
	}
	s.metrics.Add(hub.Rows()...)
	a := &addition{tap: hub, admin: map[string]http.Handler{"capture": hub}, run: hub.Run}
	if s.conf.Capture != "" {
		a.part = func() web.Part { return capturePart(hub.Problem()) }
	}
	return a, nil
}

// capturePart reports whether requests are captured into the file. Answers do not depend on it.
func capturePart(problem string) web.Part {
	part := web.Part{Name: "capture", Serving: true}
	if problem != "" {
		part.Problem = "has stopped until its file can be written: " + problem
	}
	return part
}
