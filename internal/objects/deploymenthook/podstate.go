package deploymenthook

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// deadlineExceeded is the reason in the status of a pod that the kubelet has ended at its activeDeadlineSeconds.
const deadlineExceeded = "DeadlineExceeded"

// exitOf returns the exit code of the hook's container, once it has ended. The phase of the pod follows a moment later,
// or never: containers that a webhook has added may run for ever.
func exitOf(pod *corev1.Pod) (code int32, isEnded bool) {
	container := pod.Annotations[containerAnnotation]
	if container == "" && len(pod.Spec.Containers) > 0 { // the creator of the pod has set none
		container = pod.Spec.Containers[0].Name
	}
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; status.Name == container && ended != nil {
			return ended.ExitCode, true
		}
	}
	return 0, false
}

// HasEnded reports whether the pod of a hook has ended, by its phase or because its container has ended.
func HasEnded(pod *corev1.Pod) bool { return hasSucceeded(pod) || hasFailed(pod) }

func hasSucceeded(pod *corev1.Pod) bool {
	code, isEnded := exitOf(pod)
	return pod.Status.Phase == corev1.PodSucceeded || isEnded && code == 0 && !isEndedByNode(pod)
}

func hasFailed(pod *corev1.Pod) bool {
	_, isEnded := exitOf(pod)
	return !hasSucceeded(pod) && (isEnded || pod.Status.Phase == corev1.PodFailed)
}

// isEndedByNode reports whether the kubelet has ended the pod, as in an eviction: the exit code may be 0 then.
func isEndedByNode(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != ""
}

// failureOf describes the failure of a pod: by its exit code, or by the message of its status.
func failureOf(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 && pod.Status.Reason == "" {
			return fmt.Sprintf("pod %s has ended with exit code %d%s", pod.Name, ended.ExitCode, known(ended.Reason))
		}
	}
	why := strings.TrimRight(cmp.Or(pod.Status.Message, pod.Status.Reason, "its status has no reason"), ". ")
	return fmt.Sprintf("pod %s has failed: %s", pod.Name, printable.Line(why))
}

// deletionOf describes the deletion of a pod before its end, with the reason if its status has it.
func deletionOf(pod *corev1.Pod) string {
	why := ""
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			why = printable.Line(condition.Message)
		}
	}
	return fmt.Sprintf("pod %s was deleted before it had ended%s", pod.Name, punctuated(why))
}

// known returns the reason of an exit code, unless it only means that the code is not 0.
func known(reason string) string {
	if reason == "" || reason == "Error" {
		return ""
	}
	return " (" + printable.Line(reason) + ")"
}

// LastLines returns the end of the log of a pod that has failed, if its status has it.
func LastLines(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			return ended.Message
		}
	}
	return ""
}

// StateOf describes the state of a pod that has not ended.
func StateOf(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" {
			return "waits: " + printable.Line(waiting.Reason+punctuated(waiting.Message))
		}
		if status.State.Running != nil {
			return "runs"
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return "has no node: " + printable.Line(condition.Message)
		}
	}
	return "has not started"
}

// punctuated returns a text behind a colon, if there is one.
func punctuated(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
