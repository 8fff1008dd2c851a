package relay

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// A DialFunc connects to a destination, HOST:PORT.
type DialFunc func(ctx context.Context, destination string) (net.Conn, error)

// Connect answers a CONNECT request with a connection to its destination, or with the error of dial.
func Connect(w http.ResponseWriter, r *http.Request, dial DialFunc) {
	server, err := dial(r.Context(), r.URL.Host)
	client, _, hijackErr := http.NewResponseController(w).Hijack()
	switch {
	case hijackErr != nil && err == nil:
		server.Close()
		return
	case hijackErr != nil:
		return
	case err != nil:
		reason := strings.Join(strings.Fields(err.Error()), " ")
		fmt.Fprintf(client, "HTTP/1.1 502 %s\r\nContent-Length: 0\r\n\r\n", reason)
		client.Close()
		return
	}
	fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
	join(client, server)
}
