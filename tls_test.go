package chainmail

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is a CA that lives for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	p := filepath.Join(a.dir, name)
	if err := os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return p
}

// issue makes the certificate of a member of a cluster.
func (a *authority) issue(cluster, id string) TLS {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	uri := &url.URL{Scheme: "chainmail", Host: cluster, Path: "/member/" + id}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		URIs: []*url.URL{uri}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return TLS{CAFile: filepath.Join(a.dir, "ca.pem"), CertFile: a.write(id+".pem", "CERTIFICATE", der), KeyFile: a.write(id+"-key.pem", "EC PRIVATE KEY", raw)}
}

// Three members with certificates form a cluster and serve; one with another CA's, or another member's, is no part of it.
func TestMutualTLS(t *testing.T) {
	ca := newAuthority(t)
	nodes := cluster(t, 3, func(c *Config) { c.TLS = ca.issue("default", c.NodeID) })
	ctx := limit(t, 10*time.Second)
	for i, n := range nodes {
		if sum, err := n.Counter().Add(ctx, "c", 1); err != nil || sum != int64(i+1) {
			t.Fatal(sum, err)
		}
	}
	for name, tls := range map[string]TLS{"another CA": newAuthority(t).issue("default", "m9"), "another member": ca.issue("default", "m8"), "another cluster": ca.issue("other", "m9"), "none": {}} {
		c := testConfig(t, "m9")
		c.TLS = tls
		n := start(t, c)
		if err := n.Coordinator().Join(limit(t, 2*time.Second), []string{nodes[0].Addr()}); err == nil {
			t.Errorf("a member with a certificate of %s has joined", name)
		}
		n.Close()
	}
	if _, ok := nodes[0].Coordinator().Placement().Member("m9"); ok {
		t.Error("m9 is listed")
	}
	if sum, err := nodes[2].Counter().Add(ctx, "c", 1); err != nil || sum != 4 {
		t.Error(sum, err)
	}
}
