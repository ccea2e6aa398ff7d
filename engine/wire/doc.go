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
//	page   = flags (1: its stamp is that of the commit or copy around it, 2: as another), name, [stamp], sum (4), data
//	entry  = key, flags (1: promised is the stamp's epoch, 2: no stamp, 4: pages follow, 8: as before), epoch, [uv sequence],
//	         [epoch promised], [list of pages]
//	sum    = uv
//	result = code (1), app code (2), string text, bytes body, stamp, word owner, uv version
//
// A page's name is a string and its data are bytes. In a list of entries they may be written as another's: that of the same
// place in the entry with pages before. Each is then how many bytes it begins with alike (uv), and the rest (a string, or
// bytes). This is so if name and data have 3 bytes or more in common with the other's; names or data of which one is longer
// than 64 bytes count as having none.
//
// An entry's epoch is that of its stamp, or the promise if it has no stamp. With flag 8 its version and member are those of the
// entry before, and so are the low 20 bits of its number: uv, the rest of the number, takes its place.
//
// The bodies follow the order of the fields in engine/core/message.go; codec.go writes each once for both directions. A
// deadline travels as what is left of it, in microseconds (uv): clocks are never compared. The sender's instant is there to
// tell messages that were on their way for long from others of the same sender. Nothing may follow the last
// field. Page sums are not checked here: the writer makes them, stores and receivers check them.
package wire
