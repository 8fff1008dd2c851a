package extensionserver

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// ServingFlags are the flags for the address and the certificate of an extension.
type ServingFlags struct{ address, certFile, keyFile string }

// AddFlags adds the flags to those of a program.
func (f *ServingFlags) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&f.address, "listen", ":9443", "the address where hooks are answered")
	flags.StringVar(&f.certFile, "cert-file", "",
		"the certificate, as PEM, for the host name in the ExtensionConfig; it may change at any time")
	flags.StringVar(&f.keyFile, "key-file", "", "the key of --cert-file")
}

// slowest bounds the time to read a request, and to write its response: more than any call may last.
const slowest = time.Minute

// Serve serves hooks until ctx ends. The certificate is read for each connection, so that a renewed one is used at
// once.
func (s *ExtensionServer) Serve(ctx context.Context, f ServingFlags) error {
	certificate := func() (*tls.Certificate, error) {
		found, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
		return &found, err
	}
	if _, err := certificate(); err != nil {
		return fmt.Errorf("read --cert-file and --key-file: %w", err)
	}
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	fmt.Fprintln(os.Stderr, "answering runtime hooks at", listener.Addr())
	server := &http.Server{
		Handler: s, ReadTimeout: slowest, WriteTimeout: slowest,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
