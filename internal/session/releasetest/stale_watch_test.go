package releasetest_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/releasetest"
)

// TestOutdatedWatchIsRepeatedAfterAPause shows no object, and a read shows one. The test is watched again after a
// pause, not as often as the server answers.
func TestOutdatedWatchIsRepeatedAfterAPause(t *testing.T) {
	s := newShop(t)
	const timeout = 3 * time.Second
	var watches atomic.Int64
	s.Cluster = sandboxtest.Connect(t, sandboxtest.Before(test.Sandbox(t).Config, func(r *http.Request) error {
		query := r.URL.Query()
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+s.name+"/jobs") &&
			query.Get("fieldSelector") != "" {
			watches.Add(1)
			query.Set("fieldSelector", "metadata.name=not-yet-seen")
			r.URL.RawQuery = query.Encode()
		}
		return nil
	}))
	report := s.run(s.load(job("passes", "", "")), releasetest.Options{Timeout: timeout})
	if report.Tests[0].State != releasetest.TimedOut {
		t.Errorf("%+v", report.Tests)
	}
	if most := int64(4 * timeout / time.Second); watches.Load() == 0 || watches.Load() > most {
		t.Errorf("%d lists and watches in %s, want at most %d", watches.Load(), timeout, most)
	}
}
