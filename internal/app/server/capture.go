package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/headgate-rls/headgate/internal/app/capture"
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
	return &addition{tap: hub, admin: map[string]http.Handler{"capture": hub}, run: hub.Run}, nil
}
