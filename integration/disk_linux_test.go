package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"chainmail"
	"chainmail/integration/process"
)

// The disk of one member is full: it says so and stops, nothing that was acknowledged is lost, the others go on, and it
// comes back when there is room.
func TestDiskIsFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	c := beginOwn(t, 4, process.Settings{Store: chainmail.StoreBolt, Extra: inPlace})
	m := c.members[3]
	c.must(m.Signal(syscall.SIGTERM))
	c.gone(m)
	c.must(os.Rename(m.Data(), m.Data()+".was"))
	c.must(os.Mkdir(m.Data(), 0o700))
	if err := syscall.Mount("tmpfs", m.Data(), "tmpfs", 0, "size=12m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		m.Kill()
		if err := syscall.Unmount(m.Data(), 0); err != nil {
			t.Errorf("unmount %s: %v", m.Data(), err)
		}
	})
	c.must(os.CopyFS(m.Data(), os.DirFS(m.Data()+".was")))
	c.must(m.Start())
	c.ready(c.members...)
	c.client.SetEndpoints(c.httpOf(c.members[:3]))
	l := c.mail(4, c.httpOf(c.members[:3]))
	value := bytes.Repeat([]byte("x"), 64<<10)
	keys := 0
	for ; m.Running(); keys++ {
		if keys == 1000 {
			t.Fatalf("64 MB are written, and the member with a disk of 12 goes on: %s", m.Tail(5))
		}
		ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := c.client.Put(ctx, fmt.Sprint("big-", keys), value)
		done()
		c.must(err)
	}
	if err := m.Wait(patient(t)); err == nil || !strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "panic") {
		t.Errorf("the member with the full disk ended with %v", err)
	}
	l.more(200)
	for k := range keys {
		if b, _, err := c.client.Get(patient(t), fmt.Sprint("big-", k)); err != nil || !bytes.Equal(b, value) {
			t.Fatalf("big-%d is %d bytes, %v", k, len(b), err)
		}
	}
	c.must(syscall.Mount("tmpfs", m.Data(), "tmpfs", syscall.MS_REMOUNT, "size=200m"))
	c.must(m.Start())
	c.ready(c.members...)
	l.more(100)
	l.check()
	if len(l.failed()) > 0 {
		t.Logf("asks failed: %v", l.failed()[0])
	}
	t.Logf("the disk was full after %d values of 64 KiB", keys)
}
