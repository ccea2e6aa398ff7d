package chainmailtest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"chainmail/chainmailtest"
)

// failing is a test that notes why it was ended.
type failing struct {
	*testing.T
	why string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A member that there is not ends the test with a word on it, and leaves the cluster so that it can be closed.
func TestMembersThatAreNot(t *testing.T) {
	f := &failing{T: t}
	ends := func(what, words string, do func()) {
		t.Helper()
		f.why = ""
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s panics: %v", what, p)
				}
			}()
			do()
		}()
		<-done
		if !strings.Contains(f.why, words) {
			t.Errorf("%s ends the test with %q", what, f.why)
		}
	}
	ends("a cluster of -1", "Members is -1", func() { chainmailtest.New(f, chainmailtest.Options{Members: -1}) })
	var c *chainmailtest.Cluster
	ends("a cluster", "", func() { c = chainmailtest.New(f, chainmailtest.Options{Members: 1}) })
	for _, i := range []int{-1, 1, 99} {
		words := fmt.Sprintf("of member %d: there are members 0 to 0", i)
		ends("Node", "Node "+words, func() { c.Node(i) })
		ends("Kill", "Kill "+words, func() { c.Kill(i) })
		ends("Restart", "Restart "+words, func() { c.Restart(0, i) })
		ends("Pause", "Pause "+words, func() { c.Pause(i) })
		ends("Resume", "Resume "+words, func() { c.Resume(i) })
		ends("Partition", "Partition "+words, func() { c.Partition([]int{0}, []int{i}) })
		ends("Cut", "Cut "+words, func() { c.Cut(0, i) })
		ends("Delay", "Delay "+words, func() { c.Delay(i, 0, time.Second) })
		ends("Remove", "Change "+words, func() { c.Remove(i) })
	}
	ends("Add", "Change adds -1 members", func() { c.Add(-1) })
	if _, err := c.Node(0).Counter().Add(t.Context(), "a", 1); err != nil {
		t.Error(err)
	}
}
