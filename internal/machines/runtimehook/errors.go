package runtimehook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A CallError is a problem with an extension or its answer, in one line, with a remedy.
type CallError struct {
	Extension string // the name of the handler, or of the ExtensionConfig
	Problem   string
	Advice    string

	// isIgnorable is true if failurePolicy Ignore ignores the error: the extension could not be reached, or its answer
	// could not be read. An answer with the status Failure is never ignored.
	isIgnorable bool
}

func (e *CallError) Error() string {
	return printable.Line(fmt.Sprintf("extension %s %s: %s", e.Extension, e.Problem, e.Advice))
}

// IsUnanswered reports whether an extension could not be reached, or its answer could not be read. Failure policy
// Ignore ignores such errors, and no others.
func IsUnanswered(err error) bool {
	var call *CallError
	return errors.As(err, &call) && call.isIgnorable
}

const adviceLogs = "see the log of the extension, and correct what it answers"

// wrongAnswer is the error of an answer that the hook does not allow.
func wrongAnswer(extension, format string, arguments ...any) *CallError {
	return &CallError{Extension: extension, Problem: fmt.Sprintf(format, arguments...), Advice: adviceLogs}
}

// noAnswer is the error of an answer that can't be read.
func noAnswer(extension, format string, arguments ...any) *CallError {
	e := wrongAnswer(extension, format, arguments...)
	e.isIgnorable = true
	return e
}

// longestMessage is how much of a text of an extension is shown.
const longestMessage = 512

// shown returns a text of an extension in one line.
func shown(text string) string {
	return printable.Truncate(printable.Line(strings.TrimSpace(text)), longestMessage)
}

// unreachable returns the error of a request without an answer.
func (c *call) unreachable(err error) *CallError {
	e := &CallError{Extension: c.extension, isIgnorable: true}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	host := c.url.Hostname()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Problem = fmt.Sprintf("did not answer within %s", c.timeout)
		e.Advice = "see whether it runs, or have its Discovery answer a greater timeoutSeconds (30 at most)"
	case errors.As(err, &authority):
		e.Problem = "has a certificate from an unknown authority"
		e.Advice = "set spec.clientConfig.caBundle, or the annotation " +
			"runtime.cluster.x-k8s.io/inject-ca-from-secret, to the CA of its certificate"
	case errors.As(err, &name):
		e.Problem = fmt.Sprintf("has a certificate for other hosts than %s", host)
		e.Advice = fmt.Sprintf("issue one whose DNS names or IP addresses contain %s", host)
	case errors.As(err, &invalid):
		e.Problem = "has an invalid certificate (" + shown(invalid.Error()) + ")"
		e.Advice = "renew it"
	case errors.As(err, &plain) || errors.Is(err, http.ErrSchemeMismatch):
		e.Problem = "does not speak TLS at " + c.url.Host
		e.Advice = "have it serve HTTPS, or correct the port"
	default:
		e.Problem = fmt.Sprintf("can't be reached at %s (%s)", c.url.Host, shown(printable.RequestError(err).Error()))
		e.Advice = "see whether it runs, and whether spec.clientConfig is right"
	}
	return e
}
