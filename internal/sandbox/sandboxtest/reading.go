package sandboxtest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Reading is a connection over which nothing may be written: what would write fails the
// test. Dry runs may pass, and questions about rights.
func Reading(t testing.TB, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return reader{t, next} })
	return config
}

type reader struct {
	t    testing.TB
	next http.RoundTripper
}

func (r reader) RoundTrip(request *http.Request) (*http.Response, error) {
	isQuestion := request.Method == http.MethodGet || strings.HasPrefix(request.URL.Path, "/apis/auth") // of rights, and who one is
	if !isQuestion && request.URL.Query().Get("dryRun") != metav1.DryRunAll {
		body, err := io.ReadAll(request.Body) // where deletes say it
		if err != nil {
			return nil, err
		}
		if request.Method != http.MethodDelete || !bytes.Contains(body, []byte(`"dryRun":["All"]`)) {
			r.t.Errorf("it writes: %s %s", request.Method, request.URL)
		}
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r.next.RoundTrip(request)
}
