package stack_test

import (
	"context"
	"fmt"
	"strings"

	_ "github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/backends/stack"
)

// A store at which nobody answers yet can be opened all the same.
func ExampleNew() {
	s, err := stack.New(context.Background(), "redis://127.0.0.1:6379/0", stack.Options{Replicas: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	fmt.Println(s.Caps.Name, "local:", s.Caps.Local)
	// Output:
	// redis local: false
}

func ExampleCaps() {
	for _, url := range []string{"memory://?max_keys=1000", "redis+cluster://a:6379,b:6379", "mongodb://h"} {
		caps, err := stack.Caps(url)
		if err != nil {
			message, _, _ := strings.Cut(err.Error(), ",") // the known schemes follow
			fmt.Println(message)
			continue
		}
		fmt.Println(caps.Name+":", caps.Atomicity)
	}
	// Output:
	// memory: whole request
	// redis: per partition
	// no backend for scheme "mongodb"; known are dynamodb
}
