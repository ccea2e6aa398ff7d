// Package coordinator decides who the members are. A Raft group of some of them (hashicorp/raft) keeps the placement of
// package membership; every member follows it, voting or not.
//
// Any member takes commands and forwards them to the leader. Commands are idempotent or compared with a version, so that
// one whose outcome is not known is simply sent again. The leader also runs the loops that move things on: it proposes
// the advances that are due, marks members down by its own heartbeats to them, has dead ones removed, and brings the
// votes in line with the placement, one server at a time. It remembers nothing for that: another leader goes on where
// it stopped.
//
// Nothing here is in the path of reads and writes of actors.
package coordinator
