package leases

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

func example(n int) *Lease {
	l := &Lease{Holder: "own\x00er\xff12345678", Domain: "shop", Replica: 0xdeadbeef, Until: 1_700_000_000_000_000}
	for i := range n {
		l.Held = append(l.Held, Held{
			Key: limit.Key{Group: fmt.Sprintf("4:shop%d", i), Limit: "c"}, TTL: 300 * time.Second, Rule: "tenant",
		})
	}
	return l
}

func TestTokensRoundTrip(t *testing.T) {
	s := NewSigner([]byte("secret"))
	var got Lease
	for n := range MaxHeld + 1 {
		want := example(n)
		token, err := s.Sign(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Parse(token, &got); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			want.Held, got.Held = nil, nil
		}
		if !reflect.DeepEqual(&got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if strings.ContainsAny(token, " ,;=\"\n") {
			t.Errorf("%q needs quoting", token)
		}
	}
}

// TestForgedTokensAreRefused: no change of a token, and no other secret, makes one.
func TestForgedTokensAreRefused(t *testing.T) {
	s := NewSigner([]byte("secret"))
	token, err := s.Sign(example(2))
	if err != nil {
		t.Fatal(err)
	}
	var l Lease
	for i := range token {
		for _, c := range []byte{'A', 'B', '_', '!', token[i] ^ 1} {
			if c == token[i] {
				continue
			}
			forged := token[:i] + string(c) + token[i+1:]
			// The last character may have bits that say nothing.
			if err := s.Parse(forged, &l); !errors.Is(err, ErrInvalid) && i < len(token)-1 {
				t.Errorf("%q at %d is taken", c, i)
			}
		}
		if err := s.Parse(token[:i], &l); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d of %d characters are taken", i, len(token))
		}
	}
	later := base64.RawURLEncoding.EncodeToString(append([]byte{version + 1}, make([]byte, 40)...))
	if err := s.Parse(later, &l); !errors.Is(err, ErrInvalid) || !errors.Is(err, limit.ErrLater) {
		t.Errorf("a token of a later version: %v", err)
	}
	for _, other := range []string{"", "none", "invalid", token + "A", token + token, strings.Repeat("A", MaxLen+1)} {
		if err := s.Parse(other, &l); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q is taken", other)
		}
	}
	for _, secret := range []string{"", "secret ", "Secret"} {
		if err := NewSigner([]byte(secret)).Parse(token, &l); !errors.Is(err, ErrInvalid) {
			t.Errorf("the secret %q is as good", secret)
		}
	}
}

func TestTooLargeLeaseHasNoToken(t *testing.T) {
	s := NewSigner(nil)
	if _, err := s.Sign(example(MaxHeld + 1)); err == nil || !strings.Contains(err.Error(), "17 limits, at most 16") {
		t.Error(err)
	}
	l := example(MaxHeld)
	for i := range l.Held {
		l.Held[i].Rule = strings.Repeat("r", 300)
	}
	if _, err := s.Sign(l); err == nil || !strings.Contains(err.Error(), "at most 4096") {
		t.Error(err)
	}
}

func TestParallelSignersAgree(t *testing.T) {
	s := NewSigner([]byte("secret"))
	want, _ := s.Sign(example(3))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var l Lease
			for range 200 {
				if got, err := s.Sign(example(3)); err != nil || got != want || s.Parse(got, &l) != nil {
					t.Error(got, err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzParse(f *testing.F) {
	s := NewSigner([]byte("secret"))
	for n := range 3 {
		token, _ := s.Sign(example(n))
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		var l Lease
		if s.Parse(token, &l) != nil {
			return
		}
		if again, err := s.Sign(&l); err != nil || s.Parse(again, &l) != nil {
			t.Errorf("%q: %v", again, err)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	s, l := NewSigner([]byte("secret")), example(1)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Sign(l)
	}
}

func BenchmarkParse(b *testing.B) {
	s := NewSigner([]byte("secret"))
	token, _ := s.Sign(example(1))
	var l Lease
	b.ReportAllocs()
	for b.Loop() {
		_ = s.Parse(token, &l)
	}
}
