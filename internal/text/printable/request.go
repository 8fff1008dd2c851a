package printable

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
)

// RequestError returns why a request failed, without what differs from try to try and without secrets: the port on
// this side of the connection, and the URL, which may have a password.
func RequestError(err error) error {
	var (
		timeout net.Error
		host    *net.DNSError
		network *net.OpError
		request *url.Error
	)
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nothing answers there (connection refused)")
	case errors.As(err, &host):
		return fmt.Errorf("there is no host %s", host.Name)
	case errors.As(err, &network):
		return network.Err
	case errors.As(err, &request):
		return request.Err
	default:
		return err
	}
}
