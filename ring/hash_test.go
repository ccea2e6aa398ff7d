package ring

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestKeyTokenAgreesWithOracle(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		typ, key := randomString(rnd), randomString(rnd)
		if got, want := KeyToken(HashV1, typ, key), oracleKey(typ, key); got != want {
			t.Fatalf("%q %q: %x, want %x", typ, key, got, want)
		}
		i := rnd.IntN(MaxVNodes * MaxWeight)
		if got, want := vnodeToken(key, i), oracleVnode(key, i); got != want {
			t.Fatalf("%q %d: %x, want %x", key, i, got, want)
		}
	})
}

// randomString has lengths around those where the encoding of a length grows by a byte.
func randomString(rnd *rand.Rand) string {
	b := make([]byte, []int{0, 1, 2, 7, 8, 64, 127, 128, 129, 300, 16383, 16384, 20000}[rnd.IntN(13)])
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

// Where type and key meet must matter, and so must the order of the two.
func TestKeyTokenSeparatesTypeAndKey(t *testing.T) {
	seen := map[Token]string{}
	for i := range 300 {
		all := strings.Repeat("ab", 150)
		name := fmt.Sprintf("%q %q", all[:i], all[i:])
		x := KeyToken(HashV1, all[:i], all[i:])
		if was, ok := seen[x]; ok {
			t.Errorf("%s has the token of %s", name, was)
		}
		seen[x] = name
	}
}

// Numbered keys are the rule. Their tokens must be spread evenly by their first and by their last bits.
func TestKeyTokensAreEven(t *testing.T) {
	const keys, buckets = 1 << 16, 256
	for _, format := range []string{"%d", "user-%d", "%08d", "tenant/%d/cart"} {
		var high, low [buckets]int
		for i := range keys {
			x := KeyToken(HashV1, "counter", fmt.Sprintf(format, i))
			high[x>>56]++
			low[x&0xff]++
		}
		for name, count := range map[string][buckets]int{"high": high, "low": low} {
			chi := 0.0
			for _, n := range count {
				d := float64(n) - keys/buckets
				chi += d * d / (keys / buckets)
			}
			if chi > 350 { // 255 degrees of freedom: more is seen once in 10000 times
				t.Errorf("keys %s: chi-square of the %s bits is %.0f", format, name, chi)
			}
		}
	}
}

// New refuses what it does not know; a lookup cannot fail and uses the first algorithm.
func TestUnknownHashPlacesAsTheFirst(t *testing.T) {
	for _, h := range []uint8{0, 2, 255} {
		if KeyToken(h, "counter", "a") != KeyToken(HashV1, "counter", "a") {
			t.Errorf("algorithm %d places a key elsewhere", h)
		}
	}
}
