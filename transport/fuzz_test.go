package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"
)

// The targets below get each input as it is, and once more with its lengths and checksums made right: a fuzzer does not
// find those by itself, and would never see what is behind them.

func FuzzHello(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tryHello(t, b)
		if len(b) >= helloFixed && len(b) < maxHello {
			b = bytes.Clone(b)
			binary.BigEndian.PutUint16(b[8:], uint16(len(b)-helloFixed+4))
			copy(b, helloMagic)
			tryHello(t, sealed(b))
		}
	})
}

func tryHello(t *testing.T, b []byte) {
	h, err := parseHello(b)
	if err == nil && !bytes.Equal(h.append(nil), b) {
		t.Fatalf("%x was read as %+v, which is written as %x", b, h, h.append(nil))
	}
	if err != nil && !errors.Is(err, ErrFrame) {
		t.Fatalf("parse: %v", err)
	}
	r, rerr := readHello(bytes.NewReader(b))
	if err == nil && (rerr != nil || r != h) {
		t.Fatalf("parsed %+v, but read %+v, %v", h, r, rerr)
	}
	if rerr != nil && !errors.Is(rerr, ErrFrame) && rerr != io.EOF && rerr != io.ErrUnexpectedEOF {
		t.Fatalf("read: %v", rerr)
	}
}

func FuzzAnswer(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tryAnswer(t, b)
		if len(b) >= 8 {
			b = bytes.Clone(b[:min(len(b), 8+maxReason)])
			binary.BigEndian.PutUint16(b[6:], uint16(len(b)-8))
			copy(b, refusedMagic)
			if !refusal(tryAnswer(t, sealed(b))) {
				t.Fatalf("%x is no refusal", b)
			}
		}
	})
}

func tryAnswer(t *testing.T, b []byte) error {
	h, err := readAnswer(bytes.NewReader(b))
	if err == nil && !bytes.HasPrefix(b, h.append(nil)) {
		t.Fatalf("%x was read as %+v", b, h)
	}
	if err != nil && !refusal(err) && err != io.EOF && err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	return err
}

func FuzzFrame(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Add(append(samples()["ping"], samples()["request"]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		tryFrames(t, b)
		if len(b) < headerSize || len(b) > headerSize+fuzzLimit {
			return
		}
		b = bytes.Clone(b)
		endFrame(b, 0)
		lawful := b[1] <= uint8(pong) && b[2] == 0 && b[3] == 0
		if got := tryFrames(t, append(b, b...)); lawful != (got == 2) {
			t.Fatalf("%x was read %d times", b, got)
		}
	})
}

const fuzzLimit = 1 << 16

func tryFrames(t *testing.T, b []byte) (count int) {
	for fr, rest := reader(b, fuzzLimit), b; ; count++ {
		x, err := fr.next()
		if cap(fr.buf) > 2*len(b)+2*readStep {
			t.Fatalf("%d bytes taken for an input of %d", cap(fr.buf), len(b))
		}
		if err != nil {
			if !errors.Is(err, ErrFrame) && err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Fatal(err)
			}
			return count
		}
		again := appendFrame(nil, x)
		if !bytes.HasPrefix(rest, again) {
			t.Fatalf("%+v was read from %x, but is written as %x", x, rest, again)
		}
		rest = rest[len(again):]
	}
}

func FuzzControl(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendRequest(nil, time.Second, []byte("x")))
	f.Add(appendFailure(nil, 7, "no"))
	f.Fuzz(func(t *testing.T, b []byte) {
		left, payload, err := parseRequest(b)
		switch {
		case len(b) < 4:
			if !errors.Is(err, ErrFrame) {
				t.Fatal(err)
			}
		case left < 0 || err != nil:
			t.Fatalf("left %s, %v", left, err)
		case left.Milliseconds() <= 1<<31 && !bytes.Equal(appendRequest(nil, left, payload), b):
			t.Fatalf("%x was read as %s and %x", b, left, payload)
		}
		var re *RemoteError
		if err := parseFailure(b); errors.As(err, &re) != (len(b) >= 2) {
			t.Fatal(err)
		}
		if re != nil && len(b) <= maxFailure && !bytes.Equal(appendFailure(nil, re.Code, re.Text), b) {
			t.Fatalf("%x was read as %+v", b, re)
		}
	})
}

func FuzzTLSName(f *testing.F) {
	for _, s := range []string{"chainmail://prod/member/n-1", "chainmail://prod/admin/x", "chainmail://prod/client/x", "chainmail://u@prod/member/n-1",
		"chainmail://prod/member/n-1?x", "chainmail://prod/member/n-1#x", "chainmail:prod/member/n-1", "chainmail://prod//member/n-1", "https://prod/member/n-1",
		"chainmail://prod:1/member/n-1", "chainmail://PROD/member/n-1", "chainmail://prod/member/a%2Fb", "chainmail://prod/member/"} {
		f.Add(s)
	}
	tl := &TLS{Cluster: "prod"}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		role, id, ok := tl.name(u)
		// The other way round: what is accepted is the canonical form, apart from escapes and the case of the scheme.
		canonical := url.URL{Scheme: "chainmail", Host: "prod", Path: "/" + role + "/" + id}
		same := canonical.Path == u.Path && strings.EqualFold(canonical.Scheme+"://prod/", s[:min(len(s), len("chainmail://prod/"))])
		if ok && (!same || id == "" || strings.ContainsAny(role+id, "/") || u.User != nil) {
			t.Fatalf("%q was read as role %q, id %q", s, role, id)
		}
		if !ok && s == "chainmail://prod/member/n-1" {
			t.Fatal("the plain form was refused")
		}
	})
}
