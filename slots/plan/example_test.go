package plan_test

import (
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/slots/plan"
)

// An event is requested at 12:00:01.0005 with 100 places per 4 s.
func Example() {
	size, err := plan.ParseSize("PT4S")
	if err != nil {
		fmt.Println(err)
		return
	}
	us := time.Date(2026, 11, 23, 12, 0, 1, 500_000, time.UTC).UnixMicro()
	start, elapsed := plan.WindowStart(us, size), plan.Elapsed(us, size)
	fmt.Println("elapsed:", elapsed, "ms")
	fmt.Println("places: ", plan.FirstCapacity(100, elapsed, size))

	const random = 1 << 30 // half of the way
	show := func(ms int64) { fmt.Println(time.UnixMilli(ms).UTC().Format("15:04:05.000")) }
	show(start + plan.Draw(random, elapsed, size))  // in the window of the instant
	show(start + size + plan.Draw(random, 0, size)) // in the next one
	// Output:
	// elapsed: 1001 ms
	// places:  74
	// 12:00:02.500
	// 12:00:06.000
}
