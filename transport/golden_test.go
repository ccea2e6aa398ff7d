package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files")

var helloSample = hello{1, 1, ClassMessages, Identity{ClusterID: "c1", Member: "n-1", Incarnation: 7, Version: 3, RingDigest: 0x0102030405060708}}

// samples has one of each thing that goes over the wire.
func samples() map[string][]byte {
	return map[string][]byte{
		"hello":       helloSample.append(nil),
		"hello-early": hello{1, 2, ClassControl, Identity{Member: "n-1", Incarnation: 7}}.append(nil),
		"refused":     appendRefused(nil, fmt.Errorf("peer n-1 is of cluster c2: %w", ErrWrongCluster)),
		"one-way":     appendFrame(nil, frame{kind: 9, payload: []byte("hello")}),
		"one-way-0":   appendFrame(nil, frame{kind: 9}),
		"request":     appendFrame(nil, frame{kind: 2, typ: request, correlation: 5, payload: appendRequest(nil, 1500*time.Millisecond, []byte("ask"))}),
		"response":    appendFrame(nil, frame{kind: 2, typ: response, correlation: 5, payload: []byte("answer")}),
		"failure":     appendFrame(nil, frame{kind: 2, typ: failure, correlation: 5, payload: appendFailure(nil, 42, "no")}),
		"cancel":      appendFrame(nil, frame{typ: cancel, correlation: 5}),
		"ping":        appendFrame(nil, frame{typ: ping}),
		"pong":        appendFrame(nil, frame{typ: pong}),
	}
}

// The bytes on the wire are a promise to other versions: a change here needs another protocol number.
func TestGoldenBytes(t *testing.T) {
	seen := map[string]bool{}
	for name, b := range samples() {
		path := filepath.Join("testdata", name+".hex")
		seen[path] = true
		got := strings.TrimSpace(hex.Dump(b)) + "\n"
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n%swant\n%s", name, got, want)
		}
	}
	files, _ := filepath.Glob("testdata/*.hex")
	for _, f := range files {
		if !seen[f] {
			t.Errorf("%s belongs to no sample", f)
		}
	}
}

// The numbers of the errors that travel are part of the wire, too.
func TestRefusalCodes(t *testing.T) {
	want := map[uint16]error{1: ErrProtocol, 2: ErrWrongCluster, 3: ErrNoCluster, 4: ErrRingDiverged, 5: ErrRemoved, 6: ErrWrongMember, 7: ErrLimit, 8: ErrFrame}
	if !reflect.DeepEqual(refusals, want) {
		t.Errorf("refusals are %v", refusals)
	}
	for code, e := range want {
		_, err := readAnswer(bytes.NewReader(appendRefused(nil, fmt.Errorf("why: %w", e))))
		if !errors.Is(err, e) {
			t.Errorf("code %d came back as %v", code, err)
		}
		for _, other := range want {
			if other != e && errors.Is(err, other) {
				t.Errorf("code %d came back as %v, too", code, other)
			}
		}
	}
	b := binary.BigEndian.AppendUint16([]byte(refusedMagic), 999)
	b = append(b, 0, 2, 'n', 'o')
	if _, err := readAnswer(bytes.NewReader(sealed(b))); !errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), "no") {
		t.Errorf("a code of a later version came back as %v", err)
	}
}

func sealed(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func reader(b []byte, limit int) *frameReader {
	return &frameReader{r: bufio.NewReader(bytes.NewReader(b)), limit: limit}
}

func drawIdentity(t *rapid.T) Identity {
	name := rapid.StringN(0, -1, maxIdent)
	return Identity{name.Draw(t, "cluster"), name.Draw(t, "member"), rapid.Uint64().Draw(t, "incarnation"), rapid.Uint64().Draw(t, "version"), rapid.Uint64().Draw(t, "digest")}
}

func TestHelloRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hello{rapid.Uint8().Draw(t, "lowest"), rapid.Uint8().Draw(t, "highest"), Class(rapid.IntRange(1, 5).Draw(t, "class")), drawIdentity(t)}
		b := h.append(nil)
		for name, read := range map[string]func() (hello, error){
			"parse": func() (hello, error) { return parseHello(b) },
			"read":  func() (hello, error) { return readHello(bytes.NewReader(append(b, "next"...))) },
		} {
			if got, err := read(); err != nil || got != h {
				t.Fatalf("%s: %+v, %v; want %+v", name, got, err, h)
			}
		}
	})
}

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var frames []frame
		var wire []byte
		for range rapid.IntRange(1, 5).Draw(t, "frames") {
			f := frame{rapid.Uint8().Draw(t, "kind"), frameType(rapid.IntRange(0, int(pong)).Draw(t, "type")), rapid.Uint64().Draw(t, "correlation"), nil}
			n := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(readStep-1, readStep+1), rapid.IntRange(0, 4*readStep)).Draw(t, "size")
			f.payload = bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, n)
			frames, wire = append(frames, f), appendFrame(wire, f)
		}
		fr := reader(wire, maxFrame)
		for i, want := range frames {
			got, err := fr.next()
			if err != nil || got.kind != want.kind || got.typ != want.typ || got.correlation != want.correlation || !bytes.Equal(got.payload, want.payload) {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		if _, err := fr.next(); err != io.EOF {
			t.Fatalf("after the last frame: %v", err)
		}
	})
}

// readSample reads a sample the way its receiver does.
func readSample(name string, b []byte) error {
	switch {
	case strings.HasPrefix(name, "hello"):
		_, err := readHello(bytes.NewReader(b))
		return err
	case name == "refused":
		_, err := readAnswer(bytes.NewReader(b))
		if errors.Is(err, ErrWrongCluster) {
			return nil
		}
		return err
	}
	f, err := reader(b, maxControl).next()
	if err == nil && f.typ == request {
		_, _, err = parseRequest(f.payload)
	}
	return err
}

func TestTruncationAtEveryOffset(t *testing.T) {
	for name, b := range samples() {
		if err := readSample(name, b); err != nil {
			t.Errorf("%s as a whole: %v", name, err)
		}
		for i := range b {
			want := io.ErrUnexpectedEOF
			if i == 0 {
				want = io.EOF
			}
			if err := readSample(name, b[:i]); err != want {
				t.Errorf("%s cut at %d: %v, want %v", name, i, err, want)
			}
		}
		if strings.HasPrefix(name, "hello") {
			for i := range b {
				if _, err := parseHello(b[:i]); !errors.Is(err, ErrFrame) {
					t.Errorf("%s cut at %d: %v", name, i, err)
				}
			}
			if _, err := parseHello(append(b, 0)); !errors.Is(err, ErrFrame) {
				t.Errorf("%s with a byte too many: %v", name, err)
			}
		}
	}
	for i := range 4 {
		if _, _, err := parseRequest(make([]byte, i)); !errors.Is(err, ErrFrame) {
			t.Errorf("request of %d bytes: %v", i, err)
		}
	}
	for i := range 2 {
		if err := parseFailure(make([]byte, i)); !errors.Is(err, ErrFrame) {
			t.Errorf("error response of %d bytes: %v", i, err)
		}
	}
}

func TestEveryFlippedBitIsDetected(t *testing.T) {
	for name, b := range samples() {
		for bit := range 8 * len(b) {
			c := bytes.Clone(b)
			c[bit/8] ^= 1 << (bit % 8)
			if err := readSample(name, c); err == nil {
				t.Errorf("%s with bit %d of byte %d flipped was read", name, bit%8, bit/8)
			}
		}
	}
	f := appendFrame(nil, frame{kind: 9, payload: []byte("hello")})
	f[headerSize+1] ^= 4
	if _, err := reader(f, maxFrame).next(); !errors.Is(err, ErrFrame) {
		t.Errorf("flipped payload: %v", err)
	}
}

// Rules that a checksum does not help with: the sender means it.
func TestBrokenRulesWithGoodChecksums(t *testing.T) {
	forge := func(change func(h []byte)) []byte {
		b := appendFrame(nil, frame{kind: 1, payload: []byte("x")})
		change(b)
		sum := crc32.Update(crc32.Checksum(b[:16], castagnoli), castagnoli, b[headerSize:])
		binary.BigEndian.PutUint32(b[16:], sum)
		return b
	}
	for name, b := range map[string][]byte{
		"type":         forge(func(h []byte) { h[1] = uint8(pong) + 1 }),
		"first zero":   forge(func(h []byte) { h[2] = 1 }),
		"second zero":  forge(func(h []byte) { h[3] = 1 }),
		"over limit":   appendFrame(nil, frame{payload: make([]byte, 101)}),
		"over control": forge(func(h []byte) { binary.BigEndian.PutUint32(h[4:], maxControl+1) }),
	} {
		if _, err := reader(b, 100).next(); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if limit(ClassControl) != maxControl || limit(ClassBulk) != maxFrame {
		t.Error("limits of the classes")
	}
	unsealed := func(h hello, change func([]byte) []byte) []byte {
		b := h.append(nil)
		b = change(b[:len(b)-4])
		binary.BigEndian.PutUint16(b[8:], uint16(len(b)+4-helloFixed))
		return sealed(b)
	}
	same := func(b []byte) []byte { return b }
	long := helloSample
	long.id.Member = strings.Repeat("x", maxIdent+1)
	for name, b := range map[string][]byte{
		"magic":          unsealed(helloSample, func(b []byte) []byte { b[3] = '2'; return b }),
		"zero byte":      unsealed(helloSample, func(b []byte) []byte { b[7] = 1; return b }),
		"class 0":        unsealed(hello{1, 1, 0, ident("a")}, same),
		"class 6":        unsealed(hello{1, 1, 6, ident("a")}, same),
		"long name":      unsealed(long, same),
		"trailing byte":  unsealed(helloSample, func(b []byte) []byte { return append(b, 0) }),
		"name past end":  unsealed(helloSample, func(b []byte) []byte { b[helloFixed] = 120; return b }),
		"missing digest": unsealed(helloSample, func(b []byte) []byte { return b[:len(b)-8] }),
	} {
		if _, err := parseHello(b); !errors.Is(err, ErrFrame) {
			t.Errorf("hello, %s: %v", name, err)
		}
	}
}

// allocated gives the bytes that f takes from the heap.
func allocated(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

func TestLengthIsCheckedBeforeMemoryIsTaken(t *testing.T) {
	claim := func(n uint32) []byte {
		h := appendFrame(nil, frame{kind: 1})
		binary.BigEndian.PutUint32(h[4:], n)
		return append(h, make([]byte, 100)...)
	}
	for _, c := range []struct {
		n    uint32
		most uint64
		err  error
	}{
		{1<<32 - 1, 16 << 10, ErrFrame},
		{1 << 31, 16 << 10, ErrFrame},
		{maxFrame + 1, 16 << 10, ErrFrame},
		{maxFrame, 4 * readStep, io.ErrUnexpectedEOF}, // allowed, but memory follows the bytes that arrive
	} {
		fr := reader(claim(c.n), maxFrame)
		var err error
		got := allocated(func() { _, err = fr.next() })
		if !errors.Is(err, c.err) || got > c.most {
			t.Errorf("a header that claims %d bytes: %d bytes taken, at most %d; %v, want %v", c.n, got, c.most, err, c.err)
		}
	}
	big := append([]byte(helloMagic), 1, 1, 1, 0, 0xff, 0xff)
	if _, err := readHello(bytes.NewReader(append(big, make([]byte, 70000)...))); !errors.Is(err, ErrFrame) {
		t.Errorf("a hello that claims 65535 bytes: %v", err)
	}
	big = append([]byte(refusedMagic), 0, 1, 0xff, 0xff)
	if _, err := readAnswer(bytes.NewReader(append(big, make([]byte, 70000)...))); !errors.Is(err, ErrFrame) {
		t.Errorf("a refusal that claims 65535 bytes: %v", err)
	}
}

func TestOneLargeFrameDoesNotKeepItsMemory(t *testing.T) {
	b := appendFrame(nil, frame{payload: make([]byte, 4<<20)})
	b = appendFrame(b, frame{payload: make([]byte, 10)})
	fr := reader(b, maxFrame)
	for range 2 {
		if _, err := fr.next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(fr.buf) > readStep {
		t.Errorf("%d bytes are kept after a frame of 10", cap(fr.buf))
	}
}
