// Package store keeps what one member must not forget when it is restarted: promises and pages are durable when Apply
// returns, and what an open gives back is what was. Every store belongs to one incarnation of one member of one cluster,
// and counts its starts durably, so that no epoch is ever used twice. Package storetest is the contract as a test; it is
// run against Memory, Bolt and the store in PostgreSQL of package postgres.
//
// A store that is not whole is refused when it is opened, before anything in it is changed, with an error that names it,
// its member, what is wrong and what to do; nothing is ever given up by itself. An older state of a store must not be put
// back after its member has run on: the member would break promises that it gave since. Wipe it instead: the member then
// begins a new incarnation, which counts for nothing until it has filled.
//
// Bolt is a file. Its buckets:
//
//	meta    format (1 byte), member, cluster name, cluster, incarnation (8), boot (8), starts (8 each), view (JSON), tally (8, 8)
//	copies  key -> promised epoch, stamp
//	pages   key and page name -> stamp, CRC-32C over name and data (4), data
//
// A key is the length and bytes of its type, then of its name; an epoch is version, number, and length and bytes of the
// member; a stamp is an epoch and a sequence number. Numbers are unsigned varints but where a width is given. The tally is
// the number of all other entries and the sum of their FNV-1a hashes. bbolt maps its file and trusts it: the length, the
// meta pages and every page in use are checked without mapping it before bbolt sees it, sums and the tally afterwards.
package store
