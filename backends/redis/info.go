package redis

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// eachMaster calls f for each master that client reaches, for several of a Cluster at once.
func eachMaster(ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, f)
	}
	return f(ctx, client.(*redis.Client))
}

func parseInfo(info string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

func warningsOf(info map[string]string) []string {
	var list []string
	if v := info["redis_version"]; olderThan60(v) {
		list = append(list, "version "+v+" is too old, 6.0 is the oldest that is supported")
	}
	if info["role"] == "slave" {
		list = append(list, "it is a replica and takes no writes")
	}
	if policy := info["maxmemory_policy"]; info["maxmemory"] != "0" && policy != "" && policy != "noeviction" {
		list = append(list, "with maxmemory-policy "+policy+" it may evict counters in use, which resets their limits; "+
			"use noeviction")
	}
	return list
}

func olderThan60(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	x, err := strconv.Atoi(major)
	return err == nil && x < 6
}
