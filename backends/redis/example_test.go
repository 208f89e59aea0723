package redis_test

import (
	"fmt"

	"github.com/headgate-rls/headgate/backends/redis"
)

// One server, a Sentinel group, a Cluster and a Unix socket; rediss is with TLS.
// A Config prints no password.
func ExampleParse() {
	for _, url := range []string{
		"redis://user:secret@h:6379/2?timeout=50ms",
		"rediss+sentinel://s1:26379,s2:26379/mymaster/0",
		"redis+cluster://n1:6379,n2:6379",
		"unix:///run/redis.sock?db=1",
		"redis://h:6379?timeuot=50ms",
	} {
		c, err := redis.Parse(url)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(c)
	}
	// Output:
	// redis://user:***@h:6379/2?timeout=50ms
	// rediss+sentinel://s1:26379,s2:26379/mymaster
	// redis+cluster://n1:6379,n2:6379
	// unix:///run/redis.sock?db=1
	// redis URL: unknown parameter "timeuot"; did you mean "timeout"?
}
