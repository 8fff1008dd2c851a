package oci

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// explain rewords known errors of the registry library, and adds what to do. missing is
// the text for a 404.
func explain(registry, missing string, err error) error {
	text, cause := explainStatus(registry, missing, err), err
	var attempt attemptError
	if response := new(transport.Error); errors.As(err, &attempt) &&
		(text == "" || errors.As(err, &response) && response.StatusCode == http.StatusBadRequest) {
		// the error of http if the server has no TLS; or of https if http has got a 400 from a server with TLS
		text, cause = "", attempt
	}
	if text == "" {
		text = explainConnection(registry, cause)
	}
	if text == "" {
		return withoutURL(cause)
	}
	var response *transport.Error
	if errors.As(err, &response) && response.StatusCode == http.StatusNotFound {
		err = errors.Join(ErrNotFound, err)
	}
	return &RewordedError{Text: text, Err: err}
}

func explainStatus(registry, missing string, err error) string {
	var response *transport.Error
	if !errors.As(err, &response) {
		return ""
	}
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("%s denies access (%d): log in to %[1]s, for example with \"docker login %[1]s\"", registry,
			response.StatusCode)
	case http.StatusNotFound:
		return missing
	}
	text := fmt.Sprintf("%s answers %d %s", registry, response.StatusCode, http.StatusText(response.StatusCode))
	switch {
	case response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests:
		return text + ": try again later"
	case len(response.Errors) > 0:
		return text + ": " + response.Errors[0].Message
	default:
		return text
	}
}

// explainConnection checks the error of https before that of http: the library tries
// both if it is allowed to, and returns both errors.
func explainConnection(registry string, err error) string {
	var (
		unknownHost *net.DNSError
		unknown     x509.UnknownAuthorityError
		invalid     *tls.CertificateVerificationError
		onlyHTTP    plainHTTPError
		unending    limitError
		timeout     net.Error
		attempt     attemptError
	)
	isTimeout := errors.As(err, &timeout) && timeout.Timeout()
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("the certificate of %s is of an authority that isn't trusted: set SSL_CERT_FILE to that "+
			"authority's certificate, or use --insecure", registry)
	case errors.As(err, &invalid):
		return fmt.Sprintf("the certificate of %s isn't valid: %v; pass --insecure to accept it", registry, invalid.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing answers at %s (connection refused): check its name and port, and that it's running",
			registry)
	case errors.As(err, &attempt) && !isTimeout && isDropped(err):
		return fmt.Sprintf("%s closes the connection without an answer: check that a registry listens there, or try "+
			"again later", registry)
	case errors.As(err, &unknownHost):
		return fmt.Sprintf("there is no host %s: check the registry's name and your network", unknownHost.Name)
	case errors.As(err, &unending):
		return unending.Error()
	case errors.Is(err, http.ErrSchemeMismatch):
		return plainHTTPError{host: registry}.Error()
	case isTimeout:
		return fmt.Sprintf("%s doesn't answer in time: check your network, or try again later", registry)
	case errors.As(err, &onlyHTTP):
		return onlyHTTP.Error()
	case isDropped(err):
		return registry + " closed the connection in the middle of its answer: try again later"
	default:
		return ""
	}
}

// withoutURL removes the requested URL, because the message has the release's name.
func withoutURL(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}
