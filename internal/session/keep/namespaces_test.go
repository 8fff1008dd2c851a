package keep_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// home is a release of a Namespace and an object in that Namespace.
const home = `
-- 0000_10_web_10_home.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS-home, labels: {team: shop}}}
-- 0000_10_web_20_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS-home}, data: {colour: red}}
`

// If a Namespace exists and can't be repaired, the objects in it are repaired nevertheless.
func TestUnrepairableNamespaceBlocksNoObjects(t *testing.T) {
	t.Parallel()
	s := keepIn(t, home)
	s.patch("Namespace", "NS-home", `{"metadata": {"labels": {"runlevel.dev/release": "somebody-elses"}}}`)
	s.until("it fails", func() bool { return len(s.of(keep.Failing, "Namespace", "NS-home")) == 1 })
	maps := s.admin.Client.CoreV1().ConfigMaps(s.named("NS-home"))
	s.must(maps.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	s.until("it is created again", func() bool { return len(s.of(keep.Repaired, "ConfigMap", "settings")) == 1 })
	_ = s.stop()
	s.delete("Namespace", "NS-home")
}

// If a Namespace can't be read any more, the objects in it are repaired, too: it may exist.
func TestUnreadableNamespaceBlocksNoObjects(t *testing.T) {
	t.Parallel()
	s := keepIn(t, home, every(time.Second))
	s.keeping.disturb(func(request *http.Request, parsed sandboxtest.Request) (*http.Response, error) {
		if parsed.Verb != "get" || parsed.Resource != "namespaces" {
			return nil, nil
		}
		const refused = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`
		return &http.Response{
			StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(refused)), Request: request,
		}, nil
	})
	s.until("it fails", func() bool { return len(s.of(keep.Failing, "Namespace", "NS-home")) == 1 })
	maps := s.admin.Client.CoreV1().ConfigMaps(s.named("NS-home"))
	s.must(maps.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	s.until("it is created again", func() bool { return len(s.of(keep.Repaired, "ConfigMap", "settings")) == 1 })
	_ = s.stop()
	s.delete("Namespace", "NS-home")
}
