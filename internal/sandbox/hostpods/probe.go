package hostpods

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// startPeriod is how often a process is asked that has not been ready yet. initialDelaySeconds is not waited for: it
// spares a process questions, and would keep a test waiting.
const startPeriod = 100 * time.Millisecond

// probe notes whether the container's process is ready, until ctx ends. Without a probe by httpGet, it is.
func (c *container) probe(ctx context.Context) {
	probe := c.spec.ReadinessProbe
	if probe == nil || probe.HTTPGet == nil {
		c.setReady(ctx, true)
		return
	}
	wanted := map[bool]int32{true: probe.SuccessThreshold, false: probe.FailureThreshold}
	every, isReady, last, inARow := startPeriod, false, false, int32(0)
	for {
		asking, cancel := context.WithTimeout(ctx, time.Duration(probe.TimeoutSeconds)*time.Second)
		succeeded := c.ask(asking, probe.HTTPGet) == nil
		cancel()
		if succeeded != last {
			inARow = 0
		}
		last = succeeded
		if inARow++; succeeded != isReady && inARow >= wanted[succeeded] {
			isReady, every = succeeded, time.Duration(probe.PeriodSeconds)*time.Second
			c.setReady(ctx, isReady)
		}
		if !pause(ctx, every) {
			return
		}
	}
}

// setReady notes whether the process is ready, unless it has ended meanwhile.
func (c *container) setReady(ctx context.Context, isReady bool) {
	c.pod.host.update(func() {
		if ctx.Err() == nil {
			c.isReady = isReady
		}
	})
}

// ask asks the process once.
func (c *container) ask(ctx context.Context, get *corev1.HTTPGetAction) error {
	server := url.URL{Scheme: strings.ToLower(string(get.Scheme)), Host: c.hostPort(get.Port)}
	probed, err := server.Parse("/" + strings.TrimPrefix(get.Path, "/"))
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, probed.String(), nil)
	if err != nil {
		return err
	}
	// Neither this machine's proxy nor a certificate matters to a kubelet.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", probed.Path, response.Status)
	}
	return nil
}

// hostPort returns where a probe of a port goes.
func (c *container) hostPort(port intstr.IntOrString) string {
	number := port.IntValue()
	for _, named := range c.spec.Ports {
		if port.Type == intstr.String && named.Name == port.StrVal {
			number = int(named.ContainerPort)
		}
	}
	return net.JoinHostPort(c.pod.address.listen(), strconv.Itoa(number))
}
