package limit

import (
	"math"
	"math/big"
	"testing"

	"github.com/headgate-rls/headgate/test/random"
)

// TestMulCeilDiv compares with arithmetic that has no bounds.
func TestMulCeilDiv(t *testing.T) {
	r := random.Rand(t, 1)
	number := func() int64 { return max(1, r.Int64N(math.MaxInt64)>>r.IntN(63)) }
	for range 100_000 {
		a, b, d := number(), number(), number()
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Add(want, big.NewInt(d-1)).Div(want, big.NewInt(d))
		if n, ok := mulCeilDiv(a, b, d); ok != want.IsInt64() || ok && n != want.Int64() {
			t.Fatalf("%d * %d / %d is %d, %v; want %v", a, b, d, n, ok, want)
		}
	}
}
