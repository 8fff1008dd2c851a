package keep_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/session/keep"
)

// askedBy are the requests that the audit log has of a user, each as verb and resource. A watch
// is in it when it ends.
func askedBy(t testing.TB, who string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(test.Sandbox(t).Logs, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, UserAgent, RequestURI string
			ObjectRef                   struct{ Resource, Name string }
		}
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.UserAgent == who {
			all = append(all, strings.TrimSpace(event.Verb+" "+event.ObjectRef.Resource))
		}
	}
	return all
}

// Objects that do not change, or change only their status, cause no requests except those of the lock.
func TestUnchangedObjectsCostNoRequests(t *testing.T) {
	e := newEstate(t, 1000)
	others := connectAs(t, "others")
	e.keep(t, func(event keep.Event) {
		if event.Type != keep.Keeping {
			t.Errorf("%+v", event)
		}
	})
	// When a later change is observed, all watches have begun and shown the existing objects.
	before := len(askedBy(t, e.name))
	for i := range 200 {
		if err := e.writeStatus(t.Context(), others, i, i+1); err != nil {
			t.Fatal(err)
		}
	}
	renewals := 0
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			since := askedBy(t, e.name)[before:]
			renewals = len(slices.DeleteFunc(slices.Clone(since), func(name string) bool {
				return !strings.HasSuffix(name, " leases")
			}))
			return renewals >= 4, nil
		})
	if err != nil {
		t.Fatal("the lock is not renewed:", err)
	}
	for _, name := range askedBy(t, e.name)[before:] {
		if !strings.HasSuffix(name, " leases") && !strings.HasPrefix(name, "watch ") {
			t.Error("unexpected request:", name)
		}
	}
}
