package cluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// IsNoAnswer returns whether a request failed because the server gave no answer: it could not be reached, the
// connection was cut, or the server has too much to do. The end of the caller's own context does not count.
func IsNoAnswer(err error) bool {
	isCut := errors.As(err, new(net.Error)) ||
		err != nil && strings.Contains(err.Error(), "error when reading response body")
	return isCut && !errors.Is(err, context.Canceled) || utilnet.IsProbableEOF(err) ||
		utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err)
}

// IsOutage returns whether the server gave no answer, or an internal server error.
func IsOutage(err error) bool {
	var refused apierrors.APIStatus
	return IsNoAnswer(err) || errors.As(err, &refused) && refused.Status().Code >= http.StatusInternalServerError
}

// RetryOnConflict is that of client-go, which returns no error if the context of the function ends.
func RetryOnConflict(backoff wait.Backoff, do func() error) error {
	var last error
	if err := retry.RetryOnConflict(backoff, func() error {
		last = do()
		return last
	}); err != nil {
		return err
	}
	return last
}
