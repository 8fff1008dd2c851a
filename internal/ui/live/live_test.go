package live_test

import (
	"testing"

	"github.com/runlevel/runlevel/internal/ui/live"
)

// shop is a release of three levels. Its second one waits for a Deployment.
const shop = `
-- 0000_10_base_00.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: base, namespace: NS}
-- 0000_20_web_00.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulingGates: [{name: example.com/later}]
      containers: [{name: web, image: registry.example/web}]
-- 0000_30_last_00.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: last, namespace: NS}
`

func phases(release *live.Release) string {
	text := ""
	for _, node := range release.Nodes {
		text += string(node.Phase) + " "
	}
	return text
}

// TestApplyIsSeen checks the states of the nodes from the beginning of an apply to its completion.
func TestApplyIsSeen(t *testing.T) {
	s := newSite(t)
	page := s.open()
	wait := s.apply("1.0.0", shop)
	page.until("an apply", func(r *live.Release) bool { t.Log(phases(r)); return r.Status.State != "" })
	page.until("a wait", func(r *live.Release) bool { t.Log(phases(r), r.Unread); return r.Progress != nil })
	_ = wait
}
