package etcdcluster

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"github.com/openshift/library-go/pkg/crypto"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// keys creates the keys of all certificates.
var keys = crypto.ECDSAKeyPairGenerator{Curve: crypto.P256}

// An authority signs the certificates of one etcd cluster: of its members, and of its clients.
type authority struct {
	crypto.CA
	folder string
}

// TLSFiles are the paths of a certificate, of its key, and of the authority.
type TLSFiles struct{ Cert, Key, CA string }

func newAuthority(folder string) (*authority, error) {
	own, err := crypto.NewSigningCertificate("etcd", keys)
	if err != nil {
		return nil, err
	}
	a := &authority{crypto.CA{Config: own, SerialGenerator: &crypto.RandomSerialGenerator{}}, folder}
	files := a.files("ca")
	return a, own.WriteCertConfigFile(files.Cert, files.Key)
}

// sign creates a certificate of a member at an address, or of a client if there is no address. Members call each other
// from the first address of loopback.
func (a *authority) sign(name, address string) (TLSFiles, error) {
	files, who := a.files(name), &user.DefaultInfo{Name: name}
	issued, err := a.NewClientCertificate(who, keys)
	if address != "" {
		issued, err = a.NewPeerCertificate(sets.New(address, "127.0.0.1"), who, keys)
	}
	if err != nil {
		return files, err
	}
	return files, issued.WriteCertConfigFile(files.Cert, files.Key)
}

// files returns where the certificate of a name is.
func (a *authority) files(name string) TLSFiles {
	pathOf := func(file string) string { return filepath.Join(a.folder, file) }
	return TLSFiles{Cert: pathOf(name + ".crt"), Key: pathOf(name + ".key"), CA: pathOf("ca.crt")}
}

// ClientTLS returns how a client connects to members.
func (c *Cluster) ClientTLS() (*tls.Config, error) {
	files := c.ClientFiles
	return rest.TLSConfigFor(
		&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA}},
	)
}

// FrontTLS returns how a server in front of a member is connected to.
func (c *Cluster) FrontTLS(number int) (*tls.Config, error) {
	files, err := c.authority.sign(name(number)+"-front", c.Address(number))
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the front of %s: %w", name(number), err)
	}
	own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	clients, err := cert.NewPool(files.CA)
	return &tls.Config{
		Certificates: []tls.Certificate{own},
		ClientCAs:    clients,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
	}, err
}
