// Command hello runs one member in memory and asks one actor.
package main

import (
	"context"
	"fmt"
	"log"

	"chainmail"
	"chainmail/actor"
)

type greeter struct{ Greeted int } // the state of one key, replicated

var greeters = actor.NewType("greeter", actor.Options[greeter]{})

var greet = actor.Handle(greeters, "greet", func(ctx context.Context, g *greeter, name string) (string, error) {
	g.Greeted++
	return fmt.Sprintf("hello %s, you are number %d at the %s", name, g.Greeted, actor.Current(ctx).Key()), nil
})

func main() {
	ctx := context.Background()
	node, err := chainmail.Start(ctx, chainmail.Config{Dev: true, Types: []actor.Registered{greeters}})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	answer, err := greet.Ask(ctx, node, "front door", "ada")
	fmt.Println(answer, err)
}
