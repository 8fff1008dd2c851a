package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// A client sends requests to one repository of a registry. The registry library logs in; its own requests can neither
// begin at an offset nor continue an upload.
type client struct {
	repo     name.Repository
	base     *http.Client
	attempts atomic.Int32 // of a request
	answered atomic.Bool  // the registry has answered once

	mu       sync.Mutex
	scopes   []string     // the rights to ask for
	loggedIn *http.Client // nil before the first request, and after the login has expired
}

func openRegistry(repo name.Repository, insecure bool, scope string) (*registryStore, error) {
	attempts, maxWait := int32(maxAttempts), answerTime
	if scope == transport.PushScope {
		attempts, maxWait = maxPatient, storeTime
	}
	base, err := httpClient(insecure, maxWait, GuardedDial(repo.RegistryStr()))
	if err != nil {
		return nil, err
	}
	base.Transport = limitedTransport{next: base.Transport, registry: repo.RegistryStr()}
	c := &client{repo: repo, base: base, scopes: []string{repo.Scope(scope)}}
	c.attempts.Store(attempts)
	return &registryStore{client: c}, nil
}

// login returns a client with credentials, and whether it has just logged in.
func (c *client) login(ctx context.Context) (*http.Client, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loggedIn != nil {
		return c.loggedIn, false, nil
	}
	credentials, err := keychain{}.Resolve(c.repo)
	if err != nil {
		return nil, false, err
	}
	loggedIn, err := transport.NewWithContext(ctx, c.repo.Registry, credentials,
		transport.NewUserAgent(c.base.Transport, "runlevel"), c.scopes)
	if err != nil {
		return nil, false, err
	}
	c.loggedIn = &http.Client{Transport: loggedIn}
	return c.loggedIn, true, nil
}

// logout forgets a login, so that credentials are read and tokens requested again.
func (c *client) logout(expired *http.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loggedIn == expired {
		c.loggedIn = nil
	}
}

// address returns the URL of something in the repository.
func (c *client) address(format string, values ...any) string {
	return fmt.Sprintf("%s://%s/v2/%s/", c.repo.Scheme(), c.repo.RegistryStr(), c.repo.RepositoryStr()) +
		fmt.Sprintf(format, values...)
}

// do sends a request, again after temporary failures, and returns a response with one of the codes.
func (c *client) do(request *http.Request, codes ...int) (*http.Response, error) {
	var response *http.Response
	err := retry(request.Context(), c.attempts.Load(), func() (err error) {
		response, err = c.doOnce(request, codes...)
		return err
	})
	return response, err
}

// ask sends a request without a body.
func (c *client) ask(ctx context.Context, method, address string, codes ...int) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.do(request, codes...)
	if err == nil {
		response.Body.Close() // the headers say it all
	}
	return response, err
}

// doOnce sends a request once. A body must come from GetBody.
func (c *client) doOnce(request *http.Request, codes ...int) (*http.Response, error) {
	for {
		loggedIn, isFresh, err := c.login(request.Context())
		if err != nil {
			return nil, c.classify(err, nil)
		}
		response, err := loggedIn.Do(request.Clone(request.Context()))
		var refused *transport.Error // by the token server
		isExpired := errors.As(err, &refused) && refused.StatusCode == http.StatusUnauthorized ||
			err == nil && response.StatusCode == http.StatusUnauthorized
		if isExpired && !isFresh {
			if err == nil {
				response.Body.Close()
			}
			c.logout(loggedIn)
			continue
		}
		if err != nil {
			return nil, c.classify(err, nil)
		}
		c.answered.Store(true)
		if err := transport.CheckError(response, codes...); err != nil {
			response.Body.Close()
			return nil, c.classify(err, response.Header)
		}
		return response, nil
	}
}

// classify explains an error, and marks it if the next attempt may succeed. A header may ask for a pause before that.
func (c *client) classify(err error, header http.Header) error {
	var status *transport.Error // also of the login
	var attempt attemptError
	explained := explain(c.repo.RegistryStr(), noPart, err)
	wait, mayWait := retryAfter(header)
	if errors.As(err, &status) && isTemporaryStatus(status.StatusCode) && mayWait || status == nil && isDropped(err) ||
		errors.As(err, &attempt) && c.answered.Load() {
		return &temporaryError{err: explained, wait: wait}
	}
	return explained
}

// read returns a response with one of the codes, and its whole body.
func (c *client) read(ctx context.Context, address, accept string, codes ...int) ([]byte, *http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Accept", accept)
	var response *http.Response
	var raw []byte
	err = retry(ctx, c.attempts.Load(), func() (err error) {
		if response, err = c.doOnce(request, codes...); err != nil {
			return err
		}
		defer response.Body.Close()
		if raw, err = io.ReadAll(response.Body); err != nil {
			return c.classify(err, nil)
		}
		if len(raw) > MaxManifest {
			return SizeError(fmt.Sprintf("%s answers with more than %s, which is the limit", c.repo.RegistryStr(),
				InBytes(MaxManifest)))
		}
		return nil
	})
	return raw, response, err
}
