package hostpods

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/runlevel/runlevel/internal/sandbox"
)

// report keeps the pod's status as its processes are, until ctx ends.
func (p *hostPod) report(ctx context.Context) {
	for {
		p.host.mu.Lock()
		changed, isMarked := p.host.changed, p.seen.Annotations[podAnnotation] == podOfHost &&
			p.seen.Annotations[sandbox.AddressAnnotation] == p.address.listen()
		p.host.mu.Unlock()
		var err error
		if !isMarked {
			err = p.annotate(ctx, podOfHost, p.address.listen())
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

// patchStatus writes what differs in the pod's status, if anything does.
func (p *hostPod) patchStatus(ctx context.Context) error {
	p.host.mu.Lock()
	seen, isGone := p.seen, p.isGone
	wanted := p.status()
	p.host.mu.Unlock()
	if isGone {
		return nil
	}
	patch, err := statusPatch(seen, wanted)
	if err != nil || patch == nil {
		return err
	}
	_, err = p.host.client.CoreV1().Pods(seen.Namespace).Patch(ctx, seen.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is another pod's name by now
		return nil
	}
	if err != nil {
		return fmt.Errorf("report the pod's status: %w", err)
	}
	return nil
}

// statusPatch returns nil if the status is as wanted.
func statusPatch(seen *corev1.Pod, wanted corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: seen.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: seen.UID}, Status: wanted})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil || !strings.Contains(string(patch), `"status"`) {
		return nil, err
	}
	return patch, nil
}

// status returns the status that the pod is to have. It is called with mu held.
func (p *hostPod) status() corev1.PodStatus {
	status := *p.seen.Status.DeepCopy()
	status.HostIP, status.HostIPs = "127.0.0.1", []corev1.HostIP{{IP: "127.0.0.1"}}
	status.PodIP, status.PodIPs = p.address.reported(), []corev1.PodIP{{IP: p.address.reported()}}
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
	setCondition(&status, corev1.PodInitialized, nil)
	setCondition(&status, corev1.ContainersReady, unready)
	setCondition(&status, corev1.PodReady, unready)
	return status
}

// setCondition makes a condition true, unless some are not ready.
func setCondition(status *corev1.PodStatus, name corev1.PodConditionType, unready []string) {
	wanted := corev1.PodCondition{Type: name, Status: corev1.ConditionTrue, LastTransitionTime: now()}
	if len(unready) > 0 {
		wanted.Status, wanted.Reason = corev1.ConditionFalse, "ContainersNotReady"
		wanted.Message = fmt.Sprintf("containers with unready status: %v", unready)
	}
	for i, podCondition := range status.Conditions {
		if podCondition.Type == name {
			if podCondition.Status == wanted.Status {
				wanted.LastTransitionTime = podCondition.LastTransitionTime
			}
			wanted.ObservedGeneration = podCondition.ObservedGeneration
			status.Conditions[i] = wanted
			return
		}
	}
	status.Conditions = append(status.Conditions, wanted)
}

// status is called with mu held.
func (c *container) status() corev1.ContainerStatus {
	isStarted := c.state.Running != nil
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, Ready: c.isReady, Started: &isStarted,
		RestartCount: int32(c.restarts()), State: c.state,
	}
	if c.starts > 0 {
		status.ImageID, status.ContainerID = c.spec.Image, containerID(c)
	}
	if c.state.Terminated == nil { // else it is the state
		status.LastTerminationState = c.previous
	}
	if c.pod.problem != nil {
		waiting := &corev1.ContainerStateWaiting{Reason: reasonCreating, Message: c.pod.problem.Error()}
		status.State = corev1.ContainerState{Waiting: waiting}
	}
	return status
}
