package etcdcluster

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/runlevel/runlevel/internal/sandbox/credentials"
)

// TLSFiles are the paths of a certificate, of its key, and of the authority.
type TLSFiles struct{ Cert, Key, CA string }

// newAuthority creates the authority of all members and clients, and writes its certificate into the folder.
func newAuthority(folder string) (*credentials.Authority, error) {
	authority, err := credentials.NewAuthority("etcd")
	if err != nil {
		return nil, err
	}
	pair, err := authority.KeyPair()
	if err != nil {
		return nil, err
	}
	return authority, pair.Write(folder, "ca")
}

// sign creates a certificate of a member at an address, or of a client if there is no address. Members call each other
// from the first address of the loopback, for which each certificate of a member is valid, too.
func (c *Cluster) sign(name, address string) (TLSFiles, error) {
	pathOf := func(file string) string { return filepath.Join(c.Folder, file) }
	files := TLSFiles{Cert: pathOf(name + ".crt"), Key: pathOf(name + ".key"), CA: pathOf("ca.crt")}
	pair, err := c.authority.Client(name)
	if address != "" {
		pair, err = c.authority.Server(name, address)
	}
	if err != nil {
		return files, err
	}
	return files, pair.Write(c.Folder, name)
}

// ClientTLS returns the configuration with which a client connects to members.
func (c *Cluster) ClientTLS() (*tls.Config, error) {
	files := c.ClientFiles
	return rest.TLSConfigFor(
		&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA}},
	)
}

// FrontTLS returns the configuration of a server in front of a member.
func (c *Cluster) FrontTLS(number int) (*tls.Config, error) {
	files, err := c.sign(memberName(number)+"-front", c.Address(number))
	if err != nil {
		return nil, fmt.Errorf("create a certificate for the front of %s: %w", memberName(number), err)
	}
	certificate, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	clients, err := cert.NewPool(files.CA)
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientCAs:    clients,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
	}, err
}
