package object

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/payload"
)

const (
	hookedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  annotations:
    runlevel.dev/lifecycle-hooks: |
      pre:
        failurePolicy: Abort
        execNewPod: {containerName: app, command: [migrate], env: [{name: PASSWORD, value: hunter2-hunter2}]}
spec:
  selector: {matchLabels: {a: web}}
  template: {metadata: {labels: {a: web}}, spec: {containers: [{name: app, image: app}]}}
`
	emptySecret = "{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: shop}}"
)

// An answer of a server may quote secret values in any of its fields. The output must not show them.
func TestFailuresShowNoSecrets(t *testing.T) {
	quoting := func(code int32) error {
		const text = "admission webhook \"x\" denied the request: PASSWORD is hunter2-hunter2"
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: text, Reason: text,
			Details: &metav1.StatusDetails{
				Causes: []metav1.StatusCause{{Type: text, Field: text, Message: text}},
			}}}
	}
	for name, c := range map[string]struct {
		file string
		err  error
		want string
	}{
		"a Secret": {emptySecret, quoting(403),
			"the server refuses it with 403 (denied by a webhook); its message is not shown, since it may quote the Secret"},
		"an answer without a code": {emptySecret, quoting(0),
			"the server refuses it (denied by a webhook); its message is not shown, since it may quote the Secret"},
		"no answer": {emptySecret, errors.New("connection refused"), "connection refused"},
		"a hook": {hookedDeployment, quoting(403),
			`admission webhook "x" denied the request: PASSWORD is ***`},
	} {
		release, _, err := payload.Load(t.Context(),
			fstest.MapFS{"0000_10_shop_a.yaml": &fstest.MapFile{Data: []byte(c.file)}}, payload.Options{Name: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		failure := NewFailure(release.Manifests[0], c.err)
		if got := failure.Err.Error(); got != c.want || strings.Contains(failure.Error(), "hunter2") {
			t.Errorf("%s: %s", name, failure)
		}
	}
}

// A warning about a Secret is shown where it can't quote a value.
func TestWarningsShowNoSecrets(t *testing.T) {
	const hidden = "the server warns of a Secret; its message is not shown, since it may quote it"
	for given, want := range map[string]string{
		"tls: private key does not match public key": "tls: private key does not match public key",
		"tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the " +
			"following types: [hunter2]": "tls: failed to find \"CERTIFICATE\" PEM block in certificate input",
		"v1 Secret is deprecated in v1.99+; use secrets.k8s.io/v2 Secret": "v1 Secret is deprecated in v1.99+; use " +
			"secrets.k8s.io/v2 Secret",
		"v1 Secret is deprecated: hunter2": hidden,
		"hunter2 is too short":             hidden,
	} {
		release, _, err := payload.Load(t.Context(),
			fstest.MapFS{"0000_10_shop_a.yaml": &fstest.MapFile{Data: []byte(emptySecret)}},
			payload.Options{Name: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		if got := maskWarnings(release.Manifests[0], []string{given}); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q", given, got)
		}
	}
}
