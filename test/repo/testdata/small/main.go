// Command small limits requests in process by counters in memory, to show what a program gets with the library.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strconv"

	"github.com/headgate-rls/headgate"
)

const rules = "domain: d\ndescriptors:\n- {key: user, limits: [{algorithm: sliding_log, limit: 2, window: 1h}]}\n"

func main() {
	opt := headgate.Options{Rules: []headgate.Rules{headgate.YAML("rules.yaml", rules)}}
	flag.StringVar(&opt.Backend, "backend", "memory://", "")
	flag.StringVar(&opt.Policies, "policies", "", "")
	follow := flag.String("follow", "", "")
	checks := flag.Int("checks", 3, "")
	each := flag.Bool("each", false, "each check is by another user, so that all pass")
	flag.Parse()
	if *follow != "" {
		opt.Rules, opt.Follow = []headgate.Rules{headgate.Files(*follow)}, true
	}
	limiter, err := headgate.Open(context.Background(), opt)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	user := "ann"
	for i := range *checks {
		if *each {
			user = strconv.Itoa(i)
		}
		d, err := limiter.Check(context.Background(), "d", headgate.Describe("user", user))
		fmt.Println(d.Allowed, err)
	}
}
