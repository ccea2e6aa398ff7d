// Command sessions keeps users' sessions: they leave memory when nobody uses them, and end at a time that outlives members.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/examples/internal/local"
)

const (
	idle    = 1500 * time.Millisecond // then a session leaves memory; its state stays
	warn    = 100 * time.Millisecond  // after the last view
	expires = time.Second             // after it was asked to end
)

// session is the state of one user. Pages are replicated; cached lives as long as the activation.
type session struct {
	User   string
	Views  int
	cached int // views since the session came into memory
}

// happened tells main what the session's life cycle does: it is what this program prints.
var happened = make(chan string, 16)

var sessions = actor.NewType("session", actor.Options[session]{
	Idle: idle,
	OnActivate: func(ctx context.Context, s *session) error {
		if s.User == "" {
			s.User = actor.Current(ctx).Key()
		}
		tell("%s: in memory, %d views so far", s.User, s.Views)
		return nil
	},
	OnDeactivate: func(ctx context.Context, s *session, reason string) {
		if reason == "idle" { // the others are the cluster's own business
			tell("%s: out of memory, idle", s.User)
		}
	},
})

var view = actor.Handle(sessions, "view", func(ctx context.Context, s *session, _ actor.None) (string, error) {
	s.Views++
	s.cached++
	return fmt.Sprintf("view %d, %d since in memory", s.Views, s.cached), actor.After(ctx, "warn", warn, remind, actor.None{})
})

// remind is what the timer sends: a message like any other. The timer ends with the activation.
var remind = actor.Query(sessions, "remind", func(ctx context.Context, s *session, _ actor.None) (actor.None, error) {
	tell("%s: are you still there?", s.User)
	return actor.None{}, nil
})

// endLater has the session expire. The reminder is kept with the state: whoever owns the session then runs it.
var endLater = actor.Handle(sessions, "end-later", func(ctx context.Context, s *session, in time.Duration) (actor.None, error) {
	return actor.None{}, actor.Remind(ctx, "expire", time.Now().Add(in), 0, expire, actor.None{})
})

var expire = actor.Handle(sessions, "expire", func(ctx context.Context, s *session, _ actor.None) (actor.None, error) {
	tell("%s: expired after %d views", s.User, s.Views)
	actor.Current(ctx).Delete()
	return actor.None{}, nil
})

func tell(format string, args ...any) { happened <- fmt.Sprintf(format, args...) }

func main() {
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	nodes, err := local.Start(ctx, chainmail.Config{Types: []actor.Registered{sessions}}, "a", "b", "c")
	defer func() {
		for _, n := range nodes {
			n.Close() // the one that was killed too: twice is fine
		}
	}()
	if err != nil {
		return err
	}
	look := func(n *chainmail.Node) error {
		answer, err := view.Ask(ctx, n, "ada", actor.None{})
		if err != nil {
			return err
		}
		next(ctx, 1) // it was not in memory
		fmt.Println("ada:", answer)
		return nil
	}

	if err := look(nodes[0]); err != nil {
		return err
	}
	next(ctx, 2) // the warning, and the end of the activation
	if err := look(nodes[1]); err != nil {
		return err
	}
	next(ctx, 1) // the warning again

	if _, err := endLater.Ask(ctx, nodes[2], "ada", expires); err != nil {
		return err
	}
	at, err := nodes[0].Locate("session", "ada")
	if err != nil {
		return err
	}
	var left []*chainmail.Node
	for _, n := range nodes {
		if n.ID() == at.Owner {
			fmt.Println("the member that has ada is killed")
			n.Close()
		} else {
			left = append(left, n)
		}
	}
	next(ctx, 2) // on another member, a little late
	return look(left[0])
}

// next prints what happens next.
func next(ctx context.Context, n int) {
	for range n {
		select {
		case line := <-happened:
			fmt.Println(line)
		case <-ctx.Done():
			log.Fatal("nothing happens: ", ctx.Err())
		}
	}
}
