// Package transport carries what members tell each other, over one TCP port each. This comment is the specification of
// the bytes.
//
// # Connections
//
// Each connection has a class: raft (1), control (2), messages (3), replication (4), bulk (5). A member opens one
// connection for each other member and lane, and sends on it alone, so that bulk never delays messages, replication or
// Raft; answers come on the other member's own connection. Raft connections are handed over raw after the handshake
// ([Transport.RaftLayer]). Control connections carry requests and their responses both ways.
//
// With TLS, which is outermost, both sides show certificates (TLS 1.3, ALPN "chainmail/1"); see [TLS].
//
// # Handshake
//
// The dialer sends HELLO, the listener answers HELLO or REFUSED, within 5 seconds. Integers are big-endian.
//
//	HELLO    magic "CML1" | lowest protocol (1) | highest protocol (1) | class (1) | zero (1) | length of the rest (2)
//	         | cluster id, member id (length (1) and bytes each) | incarnation (8) | placement version (8) | ring digest (8)
//	         | CRC-32C of all before (4)
//	REFUSED  magic "CMLX" | code (2) | length (2) | text | CRC-32C of all before (4)
//
// The listener answers with the protocol it chose as lowest and highest. Two cluster ids that differ are refused; an
// empty one (not formed yet) may only open raft and control connections. Equal placement versions with different ring
// digests are refused loudly: the two would place keys differently.
//
// # Frames
//
//	kind (1) | type (1) | zero (2) | length (4) | correlation (8) | CRC-32C of the header before and the payload (4) | payload
//
// The type is 0 one-way, 1 request, 2 response, 3 error response, 4 cancel, 5 ping, 6 pong. The length is checked against
// the class's limit (control 1 MiB, others 8 MiB) before memory is taken, and memory follows the bytes that arrive. A
// request's payload begins with the milliseconds that are left of its deadline (4); an error response is a code (2) and
// a text. Zero bytes must be zero, nothing may follow a payload. A frame that breaks a rule closes its connection.
//
// Pings go out every 15 seconds; a connection on which nothing arrives for 45 seconds is dead. Delivery is at most
// once, in order for each member and lane; what was queued when a connection failed is lost, and [Handler.OnPeerDown]
// says so.
package transport
