// Package wire encodes the messages of engine/core. package transport frames them.
//
// # Layout
//
// A message is: kind (1 byte), From and To (strings), FromInc, Version and the sender's instant (8 bytes each), the body. Integers of fixed
// width are big-endian; uv is an unsigned varint as in encoding/binary. A string or byte string is its length (uv) and
// its bytes. A word is a string that messages repeat (member ids, actor types): its number (uv) in the order in which
// the message first has it, followed by the string where the number is new. A bool is one byte, 0 or 1. Lists are their
// count (uv) and their elements.
//
//	key    = word type, string name
//	epoch  = uv version, uv number, word member
//	stamp  = epoch, uv sequence
//	page   = flags (1: its stamp is that of the commit or copy around it), string name, [stamp], sum (4), bytes data
//	meta   = flags (1: promised is the stamp's epoch, 2: no stamp), [stamp], [epoch promised]
//	entry  = key, meta, bool has, [list of pages]
//	sum    = uv
//	result = code (1), app code (2), string text, bytes body, stamp, word owner, uv version
//
// The bodies follow the order of the fields in engine/core/message.go; codec.go writes each once for both directions. A
// deadline travels as what is left of it, in microseconds (uv): clocks are never compared. The sender's instant is there to
// tell messages that were on their way for long from others of the same sender. Nothing may follow the last
// field. Page sums are not checked here: the writer makes them, stores and receivers check them.
package wire
