package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
)

// TLS makes both sides of every connection show a certificate. Its identity is the URI
// chainmail://<cluster name>/<role>/<member id>, with the roles member, client and admin. Raft, messages, replication
// and bulk are for members, control for members and admins.
type TLS struct {
	Cluster string // the cluster's name, as in the certificates
	Roots   *x509.CertPool
	// Certificate is asked at each handshake, so that a renewed one is used without a restart.
	Certificate func() (*tls.Certificate, error)
	// AnyRole accepts certificates of Roots without the URI. For networks where the CA signs nothing else.
	AnyRole bool
}

const alpn = "chainmail/1"

func (t *TLS) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: t.Roots,
		SessionTicketsDisabled: true, NextProtos: []string{alpn}, VerifyConnection: spoken,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.Certificate() },
	}
}

// spoken refuses a peer that did not name the protocol: crypto/tls lets one pass that names none.
func spoken(cs tls.ConnectionState) error {
	if cs.NegotiatedProtocol != alpn {
		return fmt.Errorf("tls: protocol %q, not %q: %w", cs.NegotiatedProtocol, alpn, ErrProtocol)
	}
	return nil
}

func (t *TLS) client() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{alpn},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.Certificate() },
		// Members are known by their URI, not by a host name: the chain is checked here.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if err := spoken(cs); err != nil {
				return err
			}
			if len(cs.PeerCertificates) == 0 {
				return fmt.Errorf("tls: no certificate: %w", ErrWrongMember)
			}
			o := x509.VerifyOptions{Roots: t.Roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
			for _, c := range cs.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err := cs.PeerCertificates[0].Verify(o)
			return err
		},
	}
}

// check compares a peer's certificate with what it says it is. answers says that the peer is the listener: only members
// listen.
func (t *TLS) check(cs tls.ConnectionState, class Class, member string, answers bool) error {
	if t.AnyRole {
		return nil
	}
	var seen []string
	for _, u := range cs.PeerCertificates[0].URIs {
		seen = append(seen, u.String())
		role, id, ok := t.name(u)
		if ok && (role == "member" && id == member || role == "admin" && class == ClassControl && !answers) {
			return nil
		}
	}
	return fmt.Errorf("tls: certificate for %s may not open %s as member %q of cluster %q: %w", strings.Join(seen, ", "), class, member, t.Cluster, ErrWrongMember)
}

// name reads the URI of a certificate. It fails for URIs of another form or of another cluster.
func (t *TLS) name(u *url.URL) (role, id string, ok bool) {
	if u.Scheme != "chainmail" || u.Host != t.Cluster || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", "", false
	}
	path, ok := strings.CutPrefix(u.Path, "/")
	if !ok {
		return "", "", false
	}
	role, id, ok = strings.Cut(path, "/")
	return role, id, ok && id != "" && !strings.Contains(id, "/")
}
