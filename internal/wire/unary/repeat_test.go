package unary

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate-rls/headgate/test/random"
)

// fromEnvoy is what Envoy 1.40 sends for each call but the first: its path is a
// literal, all else are indexes.
const fromEnvoy = "8304ab60b5773fa5d05b3b98855ec1a4b41a93257eecafb4692e735264ee2d9dcc42b1ba73db449b4692e7" +
	"52264fc586c4c3c2c1c0bfbe"

// TestEqualBlocksAreDecodedOnce: a block that is equal to the one before is not decoded again,
// unless the one before changed the table.
func TestEqualBlocksAreDecodedOnce(t *testing.T) {
	envoy, err := hex.DecodeString(fromEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		block []byte
		same  bool
	}{
		"nothing":                        {nil, false},
		"Envoy's":                        {envoy, true},
		"indexes":                        {[]byte{0x83, 0xbe, 0xfe}, true},
		"a literal":                      {[]byte{0x00, 1, 'a', 1, 'b', 0x83}, true},
		"a literal that is a secret":     {[]byte{0x10, 1, 'a', 1, 'b'}, true},
		"a literal without a value":      {[]byte{0x04, 0x00}, true},
		"a literal for the table":        {[]byte{0x83, 0x40, 1, 'a', 1, 'b'}, false},
		"a value for the table":          {[]byte{0x83, 0x44, 1, 'b'}, false},
		"a new size of the table":        {[]byte{0x20, 0x83}, false},
		"an index that goes on":          {[]byte{0xff, 0x80, 0x01}, false},
		"a literal's name that goes on":  {[]byte{0x0f, 0x2f, 1, 'b'}, false},
		"a string that goes on":          {append([]byte{0x04, 0x7f, 0x01}, make([]byte, 128)...), false},
		"bytes like the table's, inside": {[]byte{0x04, 3, 0x40, 0x20, 0xff}, true},
		"a string that is cut off":       {[]byte{0x04, 3, 'a', 'b'}, false},
		"a name that is cut off":         {[]byte{0x00, 3, 'a'}, false},
		"a long block":                   {bytes.Repeat([]byte{0x83}, 300), false},
	} {
		t.Run(name, func(t *testing.T) {
			var r repeat
			if r.same(c.block) {
				t.Error("the first block is like the one before")
			}
			r.remember(c.block)
			for range 2 {
				if got := r.same(c.block); got != c.same {
					t.Errorf("an equal block: %v, want %v", got, c.same)
				}
			}
			if r.same(append([]byte{0x82}, c.block...)) {
				t.Error("another block is like the one before")
			}
			r.forget()
			if r.same(c.block) {
				t.Error("it is not forgotten")
			}
		})
	}
}

// TestRepeatedBlocksAreUnderstood: whatever header blocks a client sends, and
// however often it repeats them, each call has the headers that HPACK gives it.
func TestRepeatedBlocksAreUnderstood(t *testing.T) {
	t.Parallel()
	_, addr := start(t, nil)
	rng := random.Rand(t, 77)
	for round := range random.Times(5, 200) {
		p := newPeer(t, addr)
		var one string
		dec := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
			if f.Name == "x-one" {
				one = f.Value
			}
		})
		var block []byte
		entries := 0 // in the table, at least
		for i := range 200 {
			if i == 0 || rng.IntN(5) < 2 {
				block, entries = randomBlock(rng, entries)
			} else if block[0]&0xe0 == 0x20 {
				block = block[1:] // no new size every time
			}
			one = ""
			if _, err := dec.Write(block); err != nil {
				break // an index that is gone; the server must end the connection, which other tests show
			}
			p.must(dec.Close())
			id := p.next
			p.next += 2
			p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}))
			p.must(p.fr.WriteData(id, true, grpcMessage(nil)))
			p.flush()
			a := p.answer(id)
			if want := fmt.Sprintf("%q", []string{one, "", ""}); len(a.body) < 5 || string(a.body[5:]) != want {
				t.Fatalf("round %d, call %d, block %x: %+v, want %s", round, i, block, a, want)
			}
		}
		p.nc.Close()
	}
}

// randomBlock returns a block for methodMeta, and how many entries the table has
// after it, of those that such blocks make.
func randomBlock(rng *rand.Rand, entries int) ([]byte, int) {
	text := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }
	var b []byte
	if rng.IntN(10) == 0 {
		b, entries = append(b, 0x20, 0x3f, 0xe1, 0x1f), 0 // an empty table, then one of 4,096 bytes
	}
	b = append(b, 0x83, 0x86) // POST, http
	b = text(append(b, 0x04), methodMeta)
	b = text(append(b, 0x0f, 0x10), "application/grpc")
	if entries > 0 && rng.IntN(2) == 0 {
		return append(b, 0xbe+byte(rng.IntN(entries))), entries // an x-one of the table
	}
	form := [...]byte{0x00, 0x10, 0x40}[rng.IntN(3)]
	b = text(text(append(b, form), "x-one"), fmt.Sprint("v", rng.IntN(100)))
	if form == 0x40 {
		entries = min(entries+1, 20)
	}
	return b, entries
}
