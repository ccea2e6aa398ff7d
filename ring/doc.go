// Package ring places keys on members: a consistent-hash ring with virtual nodes, weights and zones, the chain of
// rings between two member sets, and the ranges that change between adjacent rings.
//
// Everything here is a pure function of its arguments and frozen: the same members give the same table in every version
// of the program, on every member, whatever the order of the input. Hash algorithms have numbers, and a number never
// changes its meaning. A Ring is immutable and safe for concurrent use.
//
// Adding or removing one member takes at most one member out of any key's replica set and brings at most one in, and
// never reorders those that stay. The replica rule is at [Ring.Replicas], with the reason why this holds.
package ring
