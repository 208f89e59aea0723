package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// What perf script prints: four samples of the service, one of them in the kernel, and one of Redis.
const stacks = `bench 
	          4a1b2c example.com/m/limit.Decide (/tmp/bench)
	          4a1b2d example.com/m/ratelimit.(*Service).Decide+0x1a (/tmp/bench)

bench 
	          4a1b2c example.com/m/limit.Decide (/tmp/bench)
	          4a1b2d example.com/m/ratelimit.(*Service).Decide+0x1a (/tmp/bench)

bench 
	ffffffff81b98907 tcp_sendmsg ([kernel.kallsyms])
	ffffffff81731800 __x64_sys_write ([kernel.kallsyms])
	ffffffff821ed511 do_syscall_64 ([kernel.kallsyms])
	          4a1b2e linux.Syscall6 (/tmp/bench)
	    7f36ca63d008 [unknown] ([unknown])

bench 
	          4a1b2d example.com/m/ratelimit.(*Service).Decide (/tmp/bench)

redis-server 
	           d0979 lua_pcall (/usr/bin/redis-check-rdb)
`

// TestFlameGraph: stacks are added up from the outside in, and a box is as wide as its share.
func TestFlameGraph(t *testing.T) {
	all := &frame{name: "all"}
	if err := readStacks(strings.NewReader(stacks), all); err != nil {
		t.Fatal(err)
	}
	at := func(names ...string) int {
		f := all
		for _, name := range names {
			if f = f.calls[name]; f == nil {
				return 0
			}
		}
		return f.samples
	}
	const decide = "ratelimit.(*Service).Decide"
	for _, c := range []struct {
		stack []string
		want  int
	}{
		{nil, 5},
		{[]string{"headgate"}, 4},
		{[]string{"headgate", decide}, 3},
		{[]string{"headgate", decide, "limit.Decide"}, 2},
		{[]string{"headgate", "linux.Syscall6", "write"}, 1},
		{[]string{"headgate", "linux.Syscall6", "write", "tcp_sendmsg"}, 0},
		{[]string{"Redis", "lua_pcall"}, 1},
	} {
		if got := at(c.stack...); got != c.want {
			t.Errorf("%v: %d samples, want %d", c.stack, got, c.want)
		}
	}
	var drawn strings.Builder
	drawFlame(&drawn, all)
	for d := xml.NewDecoder(strings.NewReader(drawn.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		`<title>headgate 80.0 %</title><rect x="0.0" y="17" width="959.5"`,
		`<title>Redis 20.0 %</title><rect x="960.0" y="17" width="239.5"`,
	} {
		if !strings.Contains(drawn.String(), want) {
			t.Errorf("the picture lacks %s", want)
		}
	}
}

// A short run may have no samples.
func TestFlameOfNothing(t *testing.T) {
	var out strings.Builder
	drawFlame(&out, &frame{name: "all"})
	if !strings.HasPrefix(out.String(), "<svg") {
		t.Errorf("drew %q", out.String())
	}
}
