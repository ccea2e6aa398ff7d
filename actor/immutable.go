package actor

import (
	"reflect"
	_ "unsafe" // for the linkname

	_ "github.com/hashicorp/go-msgpack/v2/codec"
)

// immutable says which kinds of values the MsgPack package takes for immutable. It has structs among them, and therefore reads
// all values of a map into the same struct, one over the other: in a map[string]struct{ Tags []string } the entries would
// share the memory of their tags, and have what others of them had in fields that are not written, as it is with zeros that
// are omitted and with fields that only newer programs know. No option of the package helps, its newest version is no better
// (2.1.5), and to read every type with such maps in it again, entry by entry, would need half a codec. If the name changes the
// program does not link, and if its meaning does TestMapsOfStructs fails.
//
//go:linkname immutable github.com/hashicorp/go-msgpack/v2/codec.immutableKindsSet
var immutable [32]bool

func init() { immutable[reflect.Struct] = false }
