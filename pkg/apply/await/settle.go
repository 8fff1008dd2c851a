package await

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/ready"
)

// settleTime is the time that a workload without a probe has to stay ready. Its pods are ready as soon as their
// containers start, also if the containers crash at once and start again.
const settleTime = 3 * time.Second

// settle corrects the verdict on an object. A workload without a probe that has just become ready has to stay ready for
// settleTime, unless it was ready when it was first seen: this run has not changed it then.
func (o *trackedObject) settle(t *Tracker, verdict ready.Verdict) ready.Verdict {
	if verdict.State != ready.Ready {
		o.hasBroken = o.hasBroken || !o.readySince.IsZero()
		o.isSettled, o.readySince = false, time.Time{}
		return verdict
	}
	if o.isSettled || t.simulates || o.standard != ready.Full || len(ready.WithoutProbe(o.Manifest.Object())) == 0 {
		return verdict
	}
	now := time.Now()
	if o.readySince.IsZero() {
		o.readySince = now
		// If the cluster's clock differs, an object settles for a moment more, or less.
		if since := ready.AvailableSince(o.Live); !o.hasBroken && !since.IsZero() && since.Before(now) {
			o.readySince = since
		}
		askNodes(t)
	}
	left := o.readySince.Add(settleTime).Sub(now)
	if left <= 0 {
		o.isSettled = true
		return verdict
	}
	if o.settling != nil {
		o.settling.Stop()
	}
	o.settling = time.AfterFunc(left, func() {
		t.do(func() {
			if t.ctx.Err() == nil {
				t.judge(o)
			}
		})
	})
	return ready.Verdict{
		State:   ready.Waiting,
		Message: "it is available, and has no readiness probe: it is watched for " + settleTime.String(),
	}
}

// askNodes finds out, once, whether the nodes are simulated: their pods can't crash. If the user may not list nodes,
// they count as real.
func askNodes(t *Tracker) {
	if t.hasAskedNodes {
		return
	}
	t.hasAskedNodes = true
	t.running.Go(func() {
		if !isSimulated(t.ctx, t.cluster) {
			return
		}
		t.do(func() {
			t.simulates = true
			for _, o := range t.objects {
				if !o.readySince.IsZero() {
					t.judge(o)
				}
			}
		})
	})
}

// isSimulated reports whether the nodes of the cluster are kwok's, judged by the first 20.
func isSimulated(ctx context.Context, c *cluster.Cluster) bool {
	nodes, err := c.Objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).List(ctx,
		metav1.ListOptions{Limit: 20})
	if err != nil {
		return false
	}
	isSimulated := false
	for _, node := range nodes.Items {
		runtime, _, _ := unstructured.NestedString(node.Object, "status", "nodeInfo", "containerRuntimeVersion")
		if runtime == "" { // its kubelet has not reported yet
			continue
		}
		if isSimulated = strings.HasPrefix(runtime, "kwok-"); !isSimulated {
			return false
		}
	}
	return isSimulated
}
