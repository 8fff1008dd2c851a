package hostpods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	podpatch "k8s.io/kubernetes/pkg/util/pod"

	"github.com/runlevel/runlevel/internal/sandbox"
)

// report updates the pod's status and annotations after each change, until ctx ends.
func (p *hostPod) report(ctx context.Context) {
	for {
		p.host.mu.Lock()
		changed := p.host.changed
		annotations := p.latest.Annotations
		p.host.mu.Unlock()
		var err error
		if annotations[podAnnotation] != podOfHost || annotations[sandbox.AddressAnnotation] != p.address.listenIP() {
			err = p.annotate(ctx, podOfHost, p.address.listenIP())
		}
		if err == nil {
			err = p.patchStatus(ctx)
		}
		if err != nil && !pause(ctx, retryPause) {
			return
		}
		if err != nil {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// patchStatus writes the pod's status, if it has changed.
func (p *hostPod) patchStatus(ctx context.Context) error {
	p.host.mu.Lock()
	latest := p.latest
	isRemoved := p.isRemoved
	wanted := p.status()
	p.host.mu.Unlock()
	if isRemoved {
		return nil
	}
	_, _, _, err := podpatch.PatchPodStatus(ctx, p.host.client,
		latest.Namespace, latest.Name, latest.UID, latest.Status, wanted)
	return err
}

// status returns the pod's new status. The caller holds HostPods.mu.
func (p *hostPod) status() corev1.PodStatus {
	status := *p.latest.Status.DeepCopy()
	status.HostIP, status.HostIPs = "127.0.0.1", []corev1.HostIP{{IP: "127.0.0.1"}}
	status.PodIP, status.PodIPs = p.address.statusIP(), []corev1.PodIP{{IP: p.address.statusIP()}}
	if status.StartTime == nil {
		started := now()
		status.StartTime = &started
	}
	status.Phase, status.ContainerStatuses = corev1.PodRunning, nil
	var unready []string
	for _, c := range p.containers {
		if c.starts == 0 {
			status.Phase = corev1.PodPending
		}
		if !c.isReady {
			unready = append(unready, c.spec.Name)
		}
		status.ContainerStatuses = append(status.ContainerStatuses, c.status())
	}
	p.setCondition(&status, corev1.PodInitialized, nil)
	p.setCondition(&status, corev1.ContainersReady, unready)
	p.setCondition(&status, corev1.PodReady, unready)
	return status
}

// setCondition sets a condition to true, or to false if containers are not ready.
func (p *hostPod) setCondition(status *corev1.PodStatus, name corev1.PodConditionType, unready []string) {
	condition := &corev1.PodCondition{Type: name, Status: corev1.ConditionTrue, ObservedGeneration: p.latest.Generation}
	if len(unready) > 0 {
		condition.Status = corev1.ConditionFalse
		condition.Reason = "ContainersNotReady"
		condition.Message = fmt.Sprintf("containers with unready status: %v", unready)
	}
	podutil.UpdatePodCondition(status, condition)
}

// status returns the new status of the container. The caller holds HostPods.mu.
func (c *container) status() corev1.ContainerStatus {
	isStarted := c.state.Running != nil
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, Ready: c.isReady, Started: &isStarted,
		RestartCount: int32(c.restarts()), State: c.state,
	}
	if c.starts > 0 {
		status.ImageID, status.ContainerID = c.spec.Image, containerID(c)
	}
	if c.state.Terminated == nil { // otherwise the state has it
		status.LastTerminationState = c.previous
	}
	if c.pod.volumeErr != nil {
		waiting := &corev1.ContainerStateWaiting{Reason: reasonCreating, Message: c.pod.volumeErr.Error()}
		status.State = corev1.ContainerState{Waiting: waiting}
	}
	return status
}
