// Package store keeps a member's copies in an embedded bbolt file, so that they survive a restart: promises and pages are
// durable when Apply returns, and what Load gives back is what was.
//
// The file belongs to one incarnation of one member: it holds the incarnation, and a boot number that grows durably at
// each open, so that no epoch is ever used twice. Buckets:
//
//	meta    format (1 byte), member, incarnation (8), boot (8), view (JSON)
//	copies  key -> promised epoch, stamp
//	pages   key and page name -> stamp, CRC-32C over name and data (4), data
//
// A key is the length and bytes of its type, then of its name; an epoch is version, number, and length and bytes of the
// member; a stamp is an epoch and a sequence number. Numbers are unsigned varints but where a width is given. Sums are
// checked when the file is loaded: a copy with a bad page is not given back, and named in Corrupt.
package store
