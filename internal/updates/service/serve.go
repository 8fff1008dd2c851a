package service

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
)

// The limits bound the memory of a service, and how long a slow client occupies a connection. Clients ask every few
// minutes: connections that stay open for them would need more memory than all else.
const (
	maxConnections = 2000
	maxReading     = 10 * time.Second
	maxWriting     = 30 * time.Second
	maxIdle        = 5 * time.Second
	maxHeaders     = 16 << 10
	stopPatience   = 5 * time.Second
	updateInterval = time.Second
)

// certificates are read again every second. The last valid one is used.
type certificates struct {
	certFile, keyFile string // empty for none
	last              atomic.Pointer[tls.Certificate]
}

func (c *certificates) read() error {
	if c.certFile == "" {
		return nil
	}
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.last.Store(&loaded)
	}
	return err
}

// Serve serves until the context ends, with TLS if there is a certificate.
func (s *Service) Serve(ctx context.Context, listener net.Listener, certFile, keyFile string) error {
	listener = netutil.LimitListener(listener, maxConnections)
	all := &certificates{certFile: certFile, keyFile: keyFile}
	if err := all.read(); err != nil {
		return errors.Join(err, listener.Close())
	}
	if certFile != "" {
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return all.last.Load(), nil },
		})
	}
	server := &http.Server{
		Handler: s.Handler(), ReadTimeout: maxReading, WriteTimeout: maxWriting, IdleTimeout: maxIdle,
		MaxHeaderBytes: maxHeaders, ErrorLog: log.New(io.Discard, "", 0), // each port scan would write a line
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	ticks := time.NewTicker(updateInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			s.note("graphs", s.Update())
			s.note("certificate", all.read())
		case err := <-ended:
			return errors.Join(err, s.Close())
		case <-ctx.Done():
			return s.stop(context.WithoutCancel(ctx), server)
		}
	}
}

func (s *Service) stop(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // a client is slow, or has not sent anything yet
	}
	return s.Close()
}

// Close writes the rest to the disk.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		return s.save()
	}
	return errors.Join(s.save(), s.log.Touch(s.options.Now()), s.log.Close())
}
