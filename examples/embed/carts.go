package main

import (
	"context"
	"errors"
	"maps"

	"chainmail/actor"
)

// cart is one customer's: its key is the customer's name.
type cart struct {
	Items actor.Map[string, int]
}

// line is a number of one item.
type line struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

var errBadLine = errors.New("a line has an item and a count of at least 1")

var carts = actor.NewType("cart", actor.Options[cart]{Errors: map[uint16]error{1: errBadLine}})

var put = actor.Handle(carts, "put", func(_ context.Context, c *cart, l line) (map[string]int, error) {
	if l.Item == "" || l.Count < 1 {
		return nil, errBadLine
	}
	n, _ := c.Items.Get(l.Item)
	c.Items.Set(l.Item, n+l.Count)
	return maps.Collect(c.Items.All()), nil
})

var list = actor.Query(carts, "list", func(_ context.Context, c *cart, _ actor.None) (map[string]int, error) {
	return maps.Collect(c.Items.All()), nil
})
