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

// ReadOnly returns a configuration for reading: every other request fails the test, except for dry runs, and reviews
// of access and of tokens.
func ReadOnly(t testing.TB, config *rest.Config) *rest.Config {
	return Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		// access and self-subject reviews
		isQuestion := request.Method == http.MethodGet || strings.HasPrefix(request.URL.Path, "/apis/auth")
		if !isQuestion && request.URL.Query().Get("dryRun") != metav1.DryRunAll {
			body, err := io.ReadAll(request.Body) // deletes have dryRun in the body
			if err != nil {
				return nil, err
			}
			if request.Method != http.MethodDelete || !bytes.Contains(body, []byte(`"dryRun":["All"]`)) {
				t.Errorf("unexpected write: %s %s", request.Method, request.URL)
			}
			request = request.Clone(request.Context())
			request.Body = io.NopCloser(bytes.NewReader(body))
		}
		return send.RoundTrip(request)
	})
}
