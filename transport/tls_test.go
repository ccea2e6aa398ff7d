package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// authority signs certificates of a test.
type authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var both = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}

func newAuthority(tb testing.TB) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	c, _ = x509.ParseCertificate(der)
	return &authority{tb, c, key}
}

func (a *authority) roots() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *authority) issue(uri string, set ...func(*x509.Certificate)) *tls.Certificate {
	a.tb.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: both}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			a.tb.Fatal(err)
		}
		c.URIs = []*url.URL{u}
	}
	for _, f := range set {
		f(c)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// virtual makes a certificate valid in the time of synctest, which begins in 2000, and in real time.
func virtual(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
}

func (a *authority) config(cert *tls.Certificate) *TLS {
	return &TLS{Cluster: "prod", Roots: a.roots(), Certificate: func() (*tls.Certificate, error) { return cert, nil }}
}

func secured(c *TLS) func(*member, *Config) { return func(_ *member, cfg *Config) { cfg.TLS = c } }

func TestTLSCarriesEverything(t *testing.T) {
	n, ca := loopback(t), newAuthority(t)
	a := n.start("a", &recorder{}, secured(ca.config(ca.issue("chainmail://prod/member/a"))))
	b := n.start("b", &recorder{}, secured(ca.config(ca.issue("chainmail://prod/member/b"))))
	for _, d := range []struct{ from, to *member }{{a, b}, {b, a}} {
		for l := Messages; l < lanes; l++ {
			if err := d.from.Send(d.to.id, l, 1, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.from.RequestMember(ctx5(t), d.to.id, 1, []byte("ask")); err != nil || string(got) != "ask" {
			t.Errorf("request: %q, %v", got, err)
		}
		eventually(t, "the frames arrive", func() bool { return len(d.to.heard()) == int(lanes) })
		if got := echoRaft(t, d.from, d.to, "raft"); got != "raft" {
			t.Errorf("raft stream carried %q", got)
		}
	}
}

// Every case is tried with the odd certificate at the dialer and at the listener: neither may let the other in.
func TestTLSRefuses(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	good := "chainmail://prod/member/"
	expired := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = c.NotBefore.Add(-time.Hour), time.Now().Add(-time.Minute)
	}
	early := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }
	noUse := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }
	for _, c := range []struct {
		name string
		cert func(id string) *tls.Certificate
		want error // nil: the refusal is one of TLS itself
	}{
		{"another CA", func(id string) *tls.Certificate { return other.issue(good + id) }, nil},
		{"no certificate", func(string) *tls.Certificate { return &tls.Certificate{} }, nil},
		{"expired", func(id string) *tls.Certificate { return ca.issue(good+id, expired) }, nil},
		{"not valid yet", func(id string) *tls.Certificate { return ca.issue(good+id, early) }, nil},
		{"for another use", func(id string) *tls.Certificate { return ca.issue(good+id, noUse) }, nil},
		{"client", func(id string) *tls.Certificate { return ca.issue("chainmail://prod/client/" + id) }, ErrWrongMember},
		{"admin", func(id string) *tls.Certificate { return ca.issue("chainmail://prod/admin/" + id) }, ErrWrongMember},
		{"unknown role", func(id string) *tls.Certificate { return ca.issue("chainmail://prod/root/" + id) }, ErrWrongMember},
		{"another member", func(string) *tls.Certificate { return ca.issue(good + "z") }, ErrWrongMember},
		{"another cluster", func(id string) *tls.Certificate { return ca.issue("chainmail://test/member/" + id) }, ErrWrongMember},
		{"another scheme", func(id string) *tls.Certificate { return ca.issue("https://prod/member/" + id) }, ErrWrongMember},
		{"a user", func(id string) *tls.Certificate { return ca.issue("chainmail://x@prod/member/" + id) }, ErrWrongMember},
		{"a query", func(id string) *tls.Certificate { return ca.issue(good + id + "?x") }, ErrWrongMember},
		{"no name", func(string) *tls.Certificate { return ca.issue("") }, ErrWrongMember},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := loopback(t)
			odd := n.start("odd", &recorder{}, secured(ca.config(c.cert("odd"))))
			b := n.start("b", &recorder{}, secured(ca.config(ca.issue(good+"b"))))
			odd.RaftLayer().Close() // nobody waits for what the dialer refuses
			for class := ClassRaft; class <= ClassBulk; class++ {
				if c.name == "admin" && class == ClassControl {
					continue
				}
				for _, d := range []struct{ from, to *member }{{odd, b}, {b, odd}} {
					_, raw, _, err := d.from.dial(ctx5(t), d.to.addr, class, d.to.id)
					if err == nil {
						d.from.untrack(raw)
					}
					if err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil && refusal(err) {
						t.Errorf("%s dials %s, %s: %v", d.from.id, d.to.id, class, err)
					}
					var ca x509.UnknownAuthorityError
					var invalid x509.CertificateInvalidError
					if c.want == nil && c.name != "no certificate" && d.from == b && !errors.As(err, &ca) && !errors.As(err, &invalid) {
						t.Errorf("%s was refused for another reason: %v", d.to.id, err)
					}
				}
			}
			eventually(t, "nothing stays open", func() bool { return odd.Stats().Open+b.Stats().Open == 0 })
		})
	}
}

// An admin may ask, and do nothing else: not even answer.
func TestTLSAdmin(t *testing.T) {
	n, ca := loopback(t), newAuthority(t)
	admin := n.start("admin", &recorder{}, secured(ca.config(ca.issue("chainmail://prod/admin/me"))))
	b := n.start("b", &recorder{}, secured(ca.config(ca.issue("chainmail://prod/member/b"))))
	if _, _, err := admin.Request(ctx5(t), b.addr, 1, nil); err != nil {
		t.Errorf("admin asks: %v", err)
	}
	if _, _, err := b.Request(ctx5(t), admin.addr, 1, nil); !errors.Is(err, ErrWrongMember) {
		t.Errorf("admin answers: %v", err)
	}
}

func TestTLSAnyRole(t *testing.T) {
	n, ca := loopback(t), newAuthority(t)
	free := ca.config(ca.issue(""))
	free.AnyRole = true
	a, b := n.start("a", &recorder{}, secured(free)), n.start("b", &recorder{}, secured(free))
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Error(err)
	}
	strange := ca.config(newAuthority(t).issue("chainmail://prod/member/c"))
	strange.AnyRole = true
	c := n.start("c", &recorder{}, secured(strange))
	if _, _, err := c.Request(ctx5(t), b.addr, 1, nil); err == nil {
		t.Error("another CA was let in")
	}
}

// A certificate is asked for at each handshake: a renewed one is used without a restart.
func TestTLSRenewal(t *testing.T) {
	n, ca := loopback(t), newAuthority(t)
	var cert atomic.Pointer[tls.Certificate]
	cert.Store(ca.issue("chainmail://prod/member/a", func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(-time.Minute)
		c.NotBefore = c.NotAfter.Add(-time.Hour)
	}))
	conf := ca.config(nil)
	conf.Certificate = func() (*tls.Certificate, error) { return cert.Load(), nil }
	a := n.start("a", &recorder{}, secured(conf))
	n.start("b", &recorder{}, secured(ca.config(ca.issue("chainmail://prod/member/b"))))
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err == nil {
		t.Fatal("an expired certificate was let in")
	}
	cert.Store(ca.issue("chainmail://prod/member/a"))
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Error(err)
	}
}

// What else may talk to the port of a member with TLS.
func TestTLSRefusesOtherClients(t *testing.T) {
	n, ca := loopback(t), newAuthority(t)
	b := n.start("b", &recorder{}, secured(ca.config(ca.issue("chainmail://prod/member/b"))))
	mine := ca.issue("chainmail://prod/member/a")
	base := func() *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*mine}, NextProtos: []string{alpn}}
	}
	for name, change := range map[string]func(*tls.Config){
		"TLS 1.2":            func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		"another protocol":   func(c *tls.Config) { c.NextProtos = []string{"h2"} },
		"no protocol":        func(c *tls.Config) { c.NextProtos = nil },
		"no certificate":     func(c *tls.Config) { c.Certificates = nil },
		"nothing against it": func(*tls.Config) {},
	} {
		conf := base()
		change(conf)
		c := tls.Client(n.raw(b.addr), conf)
		c.Write(hello{1, 1, ClassControl, ident("a")}.append(nil))
		_, err := readAnswer(c)
		if fine := name == "nothing against it"; fine != (err == nil) || isTimeout(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := n.raw(b.addr)
	plain.Write(hello{1, 1, ClassControl, ident("a")}.append(nil))
	if _, err := readAnswer(plain); err == nil || isTimeout(err) {
		t.Errorf("without TLS: %v", err)
	}
	a := n.start("a", &recorder{}) // without TLS
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err == nil {
		t.Error("a member without TLS was let in")
	}
	if _, _, err := b.Request(ctx5(t), a.addr, 1, nil); err == nil {
		t.Error("a member without TLS was asked")
	}
}

// firstBytes notes what a connection reads first.
type firstBytes struct {
	net.Conn
	seen []byte
}

func (f *firstBytes) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if len(f.seen) < 4 {
		f.seen = append(f.seen, b[:n]...)
	}
	return n, err
}

// TLS is outermost: the first byte on the wire is that of a TLS record, the first one inside is that of HELLO.
func TestTLSIsOutermost(t *testing.T) {
	n, ca := loopback(t), newAuthority(t)
	conf := ca.config(ca.issue("chainmail://prod/member/a"))
	a := n.start("a", &recorder{}, secured(conf))
	l := n.listen("b")
	defer l.Close()
	inside := make(chan []byte, 1)
	go func() {
		defer close(inside)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		f := &firstBytes{Conn: c}
		tc := tls.Server(f, conf.server())
		b := make([]byte, 4)
		if _, err := io.ReadFull(tc, b); err != nil {
			t.Error(err)
		}
		if len(f.seen) < 3 || f.seen[0] != 22 || f.seen[1] != 3 {
			t.Errorf("first bytes on the wire: %x", f.seen[:min(4, len(f.seen))])
		}
		if p := tc.ConnectionState().NegotiatedProtocol; p != "chainmail/1" {
			t.Errorf("protocol %q", p)
		}
		inside <- b
	}()
	ctx, done := context.WithTimeout(t.Context(), 5*time.Second)
	defer done()
	if _, _, err := a.Request(ctx, l.Addr().String(), 1, nil); err == nil {
		t.Error("an answer from nowhere")
	}
	if b := <-inside; string(b) != helloMagic {
		t.Errorf("first bytes inside: %q", b)
	}
}
