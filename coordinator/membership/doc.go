// Package membership is the state of the replicated log: the Placement, the commands, and Apply, which takes one to the
// next. It is pure: no clock, no randomness, no map order, so that every member derives the same from the same entries.
//
// A change of the member set is one command. The chain of rings from Previous to Target has one member per step (package
// ring); each step goes through the stages copy and switch, and moves on by Advance commands that are compared with the
// version and the stage they were made for. Apply itself checks that the reports that a stage needs are there, so that
// whoever proposes an advance cannot be wrong.
package membership
