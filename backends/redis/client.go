package redis

import (
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// A Client is the driver's client with the settings of a URL, for programs that keep
// something else than limits in Redis. It sends no command twice. Close must be called.
type Client struct {
	redis.UniversalClient
	servers *servers
}

// NewClient returns a client, which connects when it is first used.
func NewClient(c Config, log *slog.Logger) (*Client, error) {
	s, err := newServers(c, log)
	if err != nil {
		return nil, err
	}
	return &Client{s.client, s}, nil
}

// Close closes the connections.
func (c *Client) Close() error { return c.servers.stop() }
