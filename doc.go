// Package chainmail runs keyed, replicated, stateful actors that stay up and lose nothing while the cluster under them
// changes. A Node is one member: it wires the log that decides who the members are (package coordinator), the engine
// that replicates and moves state (package engine) and the transport between members.
//
//	node, err := chainmail.Start(ctx, chainmail.Config{Dev: true}) // one member, in memory
//	if err != nil {
//		return err
//	}
//	defer node.Close()
//	sum, err := node.Counter().Add(ctx, "visits", 1) // replicated, linearizable
//	_, err = node.KV().Put(ctx, "greeting", []byte("hello"))
//
// Messages go to the owner of their key, wherever the call is made, and are answered once a majority of the key's
// replicas has the new state. Changing the members (Node.Enter, Node.Leave, or any change with
// Coordinator.Submit) moves copies and owners range by range while calls go on.
//
// Errors say what to do: see ErrUnavailable, ErrUnknownOutcome, ErrOverloaded and ErrRejected. A Node may be used from any
// goroutine; Close returns within 5 seconds at any time.
package chainmail
