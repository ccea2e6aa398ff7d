// Package builtin has actor types that many applications want: Lock, Queue and Map. They are written with nothing but
// package actor, and meant to be read as examples of it. The cluster command registers them all; an application lists those
// that it wants in chainmail.Config.Types.
//
//	token, err := builtin.Acquire.Ask(ctx, node, "nightly-job", builtin.Want{Holder: host, TTL: 30_000})
//	id, err := builtin.Push.Ask(ctx, node, "mails", builtin.Item{Data: mail})
//	_, err = builtin.Set.Ask(ctx, node, "settings", builtin.Entry{Key: "theme", Value: "dark"})
package builtin

import "chainmail/actor"

// Types are all types of this package.
func Types() []actor.Registered { return []actor.Registered{Locks, Queues, Maps} }
