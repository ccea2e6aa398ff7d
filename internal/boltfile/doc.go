// Package boltfile checks bbolt files before bbolt opens them, since bbolt maps a file and follows what is in it: one that was
// cut short or has bits flipped ends the process in places that nobody can recover, or shows less than was written. The stores
// of copies and of the log use it.
//
// The caller opens the file with Options, and makes it under another name first (Create): what is at its path is then
// complete, and an empty file has lost something. Data has no checksums in bbolt: what was flipped in a value is the
// caller's to find. Nothing here runs concurrently with the same file being open for writing: Check takes bbolt's own lock.
package boltfile
