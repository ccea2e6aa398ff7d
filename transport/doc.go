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
// With TLS, which is outermost, both sides show certificates and name the protocol (TLS 1.3, ALPN "chainmail/1"); see
// [TLS].
//
// A new connection of a member and lane ends the one before it: its frames are handled after the last one of the old.
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
// The listener answers with the protocol it chose as lowest and highest, and with the class that was asked for. What is no
// HELLO is answered REFUSED with code 8. At most 64 connections may be without a HELLO, 32 of them from one remote address
// (IPv4 address or IPv6 network of 64 bits); at most 4096 may be open, 512 from one remote address. More are closed at once;
// but when the 64 places are taken, one that comes from where fewer come takes that of the oldest from where most do.
//
// Two cluster ids that differ are refused; an empty one (not formed yet) may only open raft and control connections. Equal
// placement versions with different ring digests are refused loudly but for raft and control: the two would place keys
// differently, and find out by control who is the odd one.
//
// # Frames
//
//	kind (1) | type (1) | zero (2) | length (4) | correlation (8) | CRC-32C of the header before and the payload (4) | payload
//
// The type is 0 one-way, 1 request, 2 response, 3 error response, 4 cancel, 5 ping, 6 pong. The length is checked against
// the class's limit (control 1 MiB, others 8 MiB) before memory is taken, and memory follows the bytes that arrive. A
// request's payload begins with the milliseconds that are left of its deadline (4); an error response is a code (2) and
// a text of at most 16 KiB. A correlation may not be used again while its request is being answered. A listener answers
// at most 256 requests of one connection at once and refuses more. Zero bytes must be zero, nothing may follow a payload.
// A frame that breaks a rule closes its connection.
//
// Each connection of a lane has a writer: what is queued while it writes goes out together. A sender that has one frame to
// send, and nothing that follows it soon, writes it itself while the writer sleeps; what the socket does not take at once is
// the writer's, so nobody waits for a connection. Frames go out in the order in which they were queued. With TLS the writer
// writes all.
//
// Except on raft connections, the dialer pings every 15 seconds and the listener answers pong; a connection on which
// nothing arrives for 45 seconds is dead, and so is one that takes less than 256 KiB of what is written in 10 seconds. The
// dialer closes a control connection that had no request for 45 seconds.
//
// Delivery of one-way frames is at most once, in order for each member and lane; what was queued when a connection failed
// is lost, and for the lane messages [Handler.OnPeerDown] says so. Between attempts, which get rarer, frames are refused. A
// member that opens a connection itself is there: for a second from then on frames for it wait, and attempts do not end.
package transport
