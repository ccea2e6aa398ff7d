// Package postgres keeps the copies of one member in a PostgreSQL database: a store.Store whose copies are as durable as
// the database's commits. Every member has a schema of its own, "chainmail/<cluster name>/<member>":
//
//	identity  one row: format, cluster name, member, cluster, incarnation, boot, starts, applied, entries, view (JSON)
//	copies    type, name -> promised epoch, stamp
//	pages     type, name, page -> stamp, CRC-32C over name and data, data
//
// Epochs and stamps are bytes whose order is theirs. One Apply is one transaction, in two exchanges with the server.
//
// Who writes: a session's advisory lock keeps a second process out. It goes with the connection, so each transaction also
// checks boot, which the next opener has raised, and applied, which counts the transactions: after a connection was lost
// in the middle of a commit it says whether that commit happened. entries counts the rows of copies and pages, so that a
// restore that is not whole is found.
//
// While the server is slow, full or away, Apply tries again, for as long as Patience; nothing that waits for it is
// answered meanwhile. After that it fails, and the member with it.
//
// The server must be reached directly, or through a pooler that keeps sessions. A backup of a schema that is older than
// the member's last run must not be put back: drop the schema instead, and the member fills from the others.
package postgres
