package server

import (
	"fmt"
	"log/slog"

	"github.com/headgate-rls/headgate/internal/app/capture"
	"github.com/headgate-rls/headgate/internal/app/config"
)

// openCapture opens the file of --capture. Without one, requests are captured for those only who ask for it.
func openCapture(conf *config.Config, log *slog.Logger, metrics *serverMetrics) (*capture.Hub, error) {
	var c capture.Config
	if conf.Capture != "" {
		c, _ = capture.Parse(conf.Capture) // checked
	}
	hub, err := capture.New(c, log)
	if err != nil {
		return nil, fmt.Errorf("--capture: %w", err)
	}
	metrics.Add(hub.Rows()...)
	return hub, nil
}
