package operator_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/notify"
)

// A channel is where notifications arrive, of the operator and in the words for Slack.
type channel struct {
	*httptest.Server
	mu     sync.Mutex
	events []notify.CloudEvent
	texts  []string
}

func newChannel(t *testing.T) *channel {
	c := &channel{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var event notify.CloudEvent
		var message struct{ Text string }
		if request.URL.Path == "/slack" {
			err = json.Unmarshal(body, &message)
		} else if err == nil {
			err = json.Unmarshal(body, &event)
		}
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if message.Text != "" {
			c.texts = append(c.texts, message.Text)
		} else {
			c.events = append(c.events, event)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// got returns the events that have arrived.
func (c *channel) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, event := range c.events {
		all = append(all, event.Data.Version+" "+string(event.Data.Outcome))
	}
	return all
}

// TestTheOperatorNotifies the receivers of its Secret, which an administrator may create while it runs: once, although
// the operator retries failed applies and refused releases.
func TestTheOperatorNotifies(t *testing.T) {
	t.Parallel()
	s, receiver, folder := newStage(t), newChannel(t), filepath.Join(t.TempDir(), "notify")
	s.prepare("1.0.0", shop)
	s.options.NotifyDir, s.options.Cluster = folder, "prod-eu"
	var tries atomic.Int32
	s.run(sandboxtest.Before(s.sandbox.Config, func(r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/services/refused") {
			tries.Add(1)
		}
		return nil
	}), s.options)
	s.until("installed", isAt("1.0.0"))
	s.must(os.Mkdir(folder, 0o700))
	for name, path := range map[string]string{"events": receiver.URL + "/events",
		"slack": "slack+" + receiver.URL + "/slack"} {
		s.must(os.WriteFile(filepath.Join(folder, name), []byte(path+"\n"), 0o600))
	}
	s.update(s.push("1.0.1", shop+refused))
	s.await("the refused object is tried three times", func() bool { return tries.Load() >= 3 })
	s.update(s.push("1.0.2", shop))
	s.until("updated", isAt("1.0.2"))
	s.update(s.push("1.2.0", shop))
	s.until("the gate blocks", has("ReleaseAccepted", configv1.ConditionFalse, string(clusterversion.Judging)))
	blocked := s.version().Spec.DesiredUpdate.Image
	s.ask(nil)
	s.until("the request is withdrawn", has("ReleaseAccepted", configv1.ConditionTrue, string(clusterversion.Accepted)))
	s.update(blocked)
	want := []string{"1.0.1 begun", "1.0.1 failed", "1.0.2 begun", "1.0.2 completed", "1.2.0 blocked", "1.2.0 blocked"}
	s.await("all has arrived", func() bool { return len(receiver.got()) >= len(want) })
	if diff := cmp.Diff(want, receiver.got()); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	s.await("so have the messages", func() bool {
		receiver.mu.Lock()
		defer receiver.mu.Unlock()
		return slices.ContainsFunc(receiver.texts, func(text string) bool {
			return strings.HasPrefix(text, "prod-eu: default 1.0.0 → 1.0.1: update failed after ") &&
				strings.Contains(text, ": Service shop/refused: ")
		})
	})
}
