package chainmail_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"chainmail"
	"chainmail/chainmailtest"
)

// A message that may have taken effect stays of unknown outcome, although it was sent again and that attempt was not run.
func TestOutcomeStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := chainmailtest.New(t, chainmailtest.Options{Durable: true})
		owner := c.Owner("counter", "a")
		asker, third := (owner+1)%3, (owner+2)%3
		if _, err := c.Node(asker).Counter().Add(t.Context(), "a", 1); err != nil { // it has a connection then
			t.Fatal(err)
		}
		c.Cut(owner, asker) // the answer will not arrive
		answer := make(chan error)
		go func() {
			ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
			defer done()
			_, err := c.Node(asker).Counter().Add(ctx, "a", 1)
			answer <- err
		}()
		for sum := int64(0); sum < 2; { // it is committed by the owner and the third
			var err error
			if sum, err = c.Node(owner).Counter().Get(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		c.Kill(owner, third)
		if err := <-answer; !errors.Is(err, chainmail.ErrUnknownOutcome) {
			t.Errorf("the caller is told %v", err)
		}
		c.Heal()
		c.Restart(owner, third)
		c.Settle()
		if sum, err := c.Any().Counter().Get(t.Context(), "a"); sum != 2 || err != nil {
			t.Errorf("the sum is %d, %v: the message had no effect", sum, err)
		}
	})
}
