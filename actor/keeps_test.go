package actor

import (
	"bytes"
	"testing"
)

// keeper keeps the bytes that it is read from.
type keeper struct{ b []byte }

func (k *keeper) MarshalJSON() ([]byte, error)   { return k.b, nil }
func (k *keeper) UnmarshalJSON(b []byte) error   { k.b = b; return nil }
func (k *keeper) MarshalBinary() ([]byte, error) { return k.b, nil }
func (k *keeper) UnmarshalBinary(b []byte) error { k.b = b; return nil }

// What is read from a page shares no memory with it, whatever its type keeps: a page that changed would end its member.
func TestReadsShareNothing(t *testing.T) {
	for name, c := range map[string]Codec{"msgpack": owned(MsgPack), "json": owned(JSON), "binary": owned(Binary), "protobuf": owned(Protobuf)} {
		page, err := c.Marshal(&keeper{[]byte(`"kept"`)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		was := bytes.Clone(page)
		var k keeper
		if err := c.Unmarshal(page, &k); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(k.b) == 0 {
			t.Fatalf("%s has not read by the type's own method", name)
		}
		for i := range k.b {
			k.b[i] ^= 1
		}
		if !bytes.Equal(page, was) {
			t.Errorf("%s: the page is %q, was %q", name, page, was)
		}
	}
}
