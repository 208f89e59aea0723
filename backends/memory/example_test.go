package memory_test

import (
	"fmt"

	"github.com/headgate-rls/headgate/backends/memory"
)

func ExampleParse() {
	c, err := memory.Parse("memory://?max_keys=1000&max_leases=500")
	fmt.Println(c.MaxKeys, c.MaxLeases, err)
	_, err = memory.Parse("memory://?max_kyes=1000")
	fmt.Println(err)
	// Output:
	// 1000 500 <nil>
	// memory has no parameter "max_kyes"; it has max_keys, max_leases and max_records
}
