// Command consumer has an actor read a file row by row and count, whatever happens to the members it runs on.
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"log"
	"maps"
	"slices"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/examples/data"
	"chainmail/examples/internal/local"
)

const (
	batch    = 100  // rows in one commit
	killFrom = 5000 // the offset at which the member is killed
)

// counts is the state: how far the file was read, and what was in it so far. Both change in the same commit: a row is
// counted exactly when the offset has passed it.
type counts struct {
	Offset    int
	Types     actor.Map[string, int] // a page per entry: a batch replicates what it has changed
	Countries actor.Map[string, int]
	Done      bool
}

// reading is what the body is about to do, for main to look at, and to interfere with.
type reading struct {
	member string
	offset int
}

var (
	rows  = parse()
	about = make(chan reading)
)

var consumers = actor.NewType("consumer", actor.Options[counts]{Run: consume})

// start does nothing but make the key active: from then on its body is run, by whoever owns it, until it returns nil.
var start = actor.Handle(consumers, "start", func(context.Context, *counts, actor.None) (actor.None, error) {
	return actor.None{}, nil
})

// consume goes on where the last commit of any earlier run left off.
func consume(ctx context.Context, self *actor.Self[counts]) error {
	for end := false; !end; {
		var next reading
		if err := self.Do(ctx, func(ctx context.Context, c *counts) error {
			next = reading{actor.Current(ctx).Member(), c.Offset}
			return nil
		}); err != nil {
			return err
		}
		select {
		case about <- next:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := self.Do(ctx, func(_ context.Context, c *counts) error {
			take(c)
			end = c.Done
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// take counts a batch. It begins at the offset of the state it changes, so that no row can be counted twice.
func take(c *counts) {
	to := min(c.Offset+batch, len(rows))
	for _, r := range rows[c.Offset:to] {
		n, _ := c.Types.Get(r.kind)
		c.Types.Set(r.kind, n+1)
		n, _ = c.Countries.Get(r.country)
		c.Countries.Set(r.country, n+1)
	}
	c.Offset, c.Done = to, to == len(rows)
}

// result is what the actor has counted.
type result struct {
	Offset           int
	Types, Countries map[string]int
	Done             bool
}

var look = actor.Query(consumers, "look", func(_ context.Context, c *counts, _ actor.None) (result, error) {
	return result{c.Offset, maps.Collect(c.Types.All()), maps.Collect(c.Countries.All()), c.Done}, nil
})

type row struct{ kind, country string }

// parse reads the embedded file, which every member has.
func parse() []row {
	all, err := csv.NewReader(bytes.NewReader(data.Navaids)).ReadAll()
	if err != nil {
		log.Fatal(err)
	}
	kind, country := slices.Index(all[0], "type"), slices.Index(all[0], "iso_country")
	var out []row
	for _, r := range all[1:] {
		out = append(out, row{r[kind], r[country]})
	}
	return out
}

// straight counts the file as anybody would.
func straight() (types, countries map[string]int) {
	types, countries = map[string]int{}, map[string]int{}
	for _, r := range rows {
		types[r.kind]++
		countries[r.country]++
	}
	return types, countries
}

func main() {
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	nodes, err := local.Start(ctx, chainmail.Config{Types: []actor.Registered{consumers}}, "a", "b", "c")
	defer func() {
		for _, n := range nodes {
			n.Close() // the one that was killed too: twice is fine
		}
	}()
	if err != nil {
		return err
	}
	fmt.Printf("the file has %d rows\n", len(rows))
	if _, err := start.Ask(ctx, nodes[0], "navaids", actor.None{}); err != nil {
		return err
	}
	killed, err := until(ctx, func(r reading) bool { return r.offset == killFrom })
	if err != nil {
		return err
	}
	fmt.Printf("rows up to %d are committed, the next are under way: their member is killed\n", killed.offset)
	for _, n := range nodes {
		if n.ID() == killed.member {
			n.Close() // without leaving
		}
	}
	resumed, err := until(ctx, func(r reading) bool { return r.member != killed.member })
	if err != nil {
		return err
	}
	ahead := resumed.offset - killed.offset // the batch under way was committed, or was not
	fmt.Printf("another member goes on where the last commit was: %v\n", ahead == 0 || ahead == batch)
	if _, err := until(ctx, func(r reading) bool { return r.offset >= len(rows)-batch }); err != nil {
		return err
	}
	return report(ctx, nodes, killed.member)
}

// until lets the body go on until something is so.
func until(ctx context.Context, so func(reading) bool) (reading, error) {
	for {
		select {
		case r := <-about:
			if so(r) {
				return r, nil
			}
		case <-ctx.Done():
			return reading{}, ctx.Err()
		}
	}
}

// report waits for the last batch and compares the counts.
func report(ctx context.Context, nodes []*chainmail.Node, killed string) error {
	n := nodes[slices.IndexFunc(nodes, func(n *chainmail.Node) bool { return n.ID() != killed })]
	var got result
	for !got.Done {
		var err error
		if got, err = look.Ask(ctx, n, "navaids", actor.None{}); err != nil {
			return err
		}
	}
	types, countries := straight()
	fmt.Printf("counted %d rows of %d types in %d countries\n", got.Offset, len(got.Types), len(got.Countries))
	for _, t := range slices.Sorted(maps.Keys(got.Types)) {
		fmt.Printf("  %-8s %5d\n", t, got.Types[t])
	}
	if !maps.Equal(types, got.Types) || !maps.Equal(countries, got.Countries) {
		return fmt.Errorf("a straight count has %v and %v, the actor %v and %v", types, countries, got.Types, got.Countries)
	}
	fmt.Println("as a straight count of the file has them, by type and by country")
	return nil
}
