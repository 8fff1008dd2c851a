package record

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record/lock"
)

// Whatever stands in the ConfigMap is refused in one line, or means the same after it was
// written again.
func FuzzDecode(f *testing.F) {
	f.Add("")
	f.Add("null")
	f.Add("{\n \"format\": 1,\n \"rele")
	f.Add(`{"format": 2}`)
	f.Add(`{"format": 1, "release": "web", "weather": {"tomorrow": "rain"}}`)
	f.Add(`{"format": 1, "release": "web", "History": [{"state": "Partial", "started": null, "hash": "\ud800"}]}`)
	f.Add(`{"format": 1, "release": "web", "history": [{"state": "Completed", "started": "2026-01-02T03:04:05.6+02:00", "tombstones": [{}]}]}`)
	f.Add(`{"format": 1, "release": "web", "jobs": [{"kind": "Job", "name": "a", "object": {}}], "waits": [{"since": "2026-01-02T03:04:05Z"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		config := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: lock.Name("web")},
			Data:       map[string]string{key: text},
		}
		read, err := decode(config, "web")
		if err != nil {
			if message := err.Error(); strings.ContainsAny(message, "\n\x1b") || !utf8.ValidString(message) {
				t.Errorf("the error is %q", message)
			}
			return
		}
		written, _, err := encode(read, config)
		if err != nil {
			t.Fatal(err)
		}
		config.Data[key] = written
		again, err := decode(config, "web")
		if err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		if rewritten, _, err := encode(again, config); err != nil || rewritten != written {
			t.Errorf("error %v (-written +written again):\n%s", err, cmp.Diff(written, rewritten))
		}
	})
}
