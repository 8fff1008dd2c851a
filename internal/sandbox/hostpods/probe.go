package hostpods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
)

// startPeriod is the interval of probes until a process is ready for the first time. initialDelaySeconds is ignored: it
// saves a process some probes, but would make a test wait.
const startPeriod = 100 * time.Millisecond

// probe sets whether the container's process is ready, until ctx ends. Without a probe by httpGet, it is ready at once.
func (c *container) probe(ctx context.Context) {
	settings := c.spec.ReadinessProbe
	if settings == nil || settings.HTTPGet == nil {
		c.setReady(ctx, true)
		return
	}
	thresholds := map[bool]int32{true: settings.SuccessThreshold, false: settings.FailureThreshold}
	interval := startPeriod
	var isReady, last bool
	var inARow int32
	for {
		succeeded := c.probeOnce(settings)
		if succeeded != last {
			inARow = 0
		}
		last = succeeded
		if inARow++; succeeded != isReady && inARow >= thresholds[succeeded] {
			isReady = succeeded
			interval = time.Duration(settings.PeriodSeconds) * time.Second
			c.setReady(ctx, isReady)
		}
		if !pause(ctx, interval) {
			return
		}
	}
}

// probeOnce sends one request, as a kubelet does.
func (c *container) probeOnce(settings *corev1.Probe) bool {
	request, err := httpprobe.NewRequestForHTTPGetAction(settings.HTTPGet, &c.spec, c.pod.address.listen(), "probe")
	if err != nil {
		return false
	}
	result, _, err := httpprobe.New(false).Probe(request, time.Duration(settings.TimeoutSeconds)*time.Second)
	return err == nil && result != probe.Failure
}

// setReady sets whether the process is ready, unless the process has exited.
func (c *container) setReady(ctx context.Context, isReady bool) {
	c.pod.host.update(func() {
		if ctx.Err() == nil {
			c.isReady = isReady
		}
	})
}
