package etcdcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An authority signs the certificates of one etcd cluster: of its members, and of its clients.
type authority struct {
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// TLSFiles are the paths of a certificate, of its key, and of the authority.
type TLSFiles struct{ Cert, Key, CA string }

func newAuthority(folder string) (*authority, error) {
	a := &authority{folder: folder, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "etcd"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	key, der, err := a.issue("ca", a.cert)
	if err != nil {
		return nil, err
	}
	a.key = key
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// sign makes a certificate of a member at an address, or of a client if there is none.
func (a *authority) sign(name, address string) (TLSFiles, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if address != "" {
		// Members call each other from the first address of loopback.
		template.IPAddresses = []net.IP{net.ParseIP(address), net.IPv4(127, 0, 0, 1)}
	}
	_, _, err := a.issue(name, template)
	return TLSFiles{Cert: a.file(name + ".crt"), Key: a.file(name + ".key"), CA: a.file("ca.crt")}, err
}

func (a *authority) file(name string) string { return filepath.Join(a.folder, name) }

// issue writes a certificate and its key into the folder. The first one signs itself.
func (a *authority) issue(name string, template *x509.Certificate) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, nil, err
		}
	}
	return key, der, nil
}

// ClientTLS returns how a client connects to members.
func (c *EtcdCluster) ClientTLS() (*tls.Config, error) {
	config, err := c.authority.config(c.ClientFiles)
	if err != nil {
		return nil, err
	}
	config.RootCAs = c.authority.pool()
	return config, nil
}

// FrontTLS returns how a server in front of a member is connected to.
func (c *EtcdCluster) FrontTLS(number int) (*tls.Config, error) {
	files, err := c.authority.sign(name(number)+"-front", c.Address(number))
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the front of %s: %w", name(number), err)
	}
	config, err := c.authority.config(files)
	if err != nil {
		return nil, err
	}
	config.ClientCAs, config.ClientAuth = c.authority.pool(), tls.RequireAndVerifyClientCert
	return config, nil
}

func (a *authority) config(files TLSFiles) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("read a certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}, nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
