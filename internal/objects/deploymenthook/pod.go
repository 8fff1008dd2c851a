package deploymenthook

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Labels of the pods of hooks. They have no other labels, so no Service and no ReplicaSet selects them.
const (
	DeploymentLabel = "runlevel.dev/hook-of" // the Deployment: see LabelOf
	stageLabel      = "runlevel.dev/hook"
	hashLabel       = "runlevel.dev/hook-hash" // hash of the hook and the template
	attemptLabel    = "runlevel.dev/hook-attempt"
)

// containerAnnotation names the container of the hook, because webhooks may add others. kubectl logs reads it, too.
const containerAnnotation = "kubectl.kubernetes.io/default-container"

// maxLabel is the maximum length of the value of a label, and of a host name.
const maxLabel = 63

// LabelOf returns the value of DeploymentLabel for a Deployment.
func LabelOf(deployment string) string {
	if len(deployment) <= maxLabel {
		return deployment
	}
	return shortenName(deployment, "-"+hash(deployment))
}

// shortenName returns a name that ends with a suffix and fits into a label.
func shortenName(name, suffix string) string {
	name = name[:min(len(name), maxLabel-len(suffix))]
	return strings.TrimRight(name, "-.") + suffix
}

// pod returns the pod of an attempt. It has the scheduling and security fields of the template, and the image and the
// environment of its container, but no probes, lifecycle handlers or ports.
func (s sequence) pod(attempt int) *corev1.Pod {
	template := s.Desired.Spec.Template.Spec
	suffix := fmt.Sprintf("-%s-%s-%d", s.stage, s.hash(), attempt)
	timeout := int64(s.hook.Timeout().Seconds())
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Desired.Namespace,
			Name:      shortenName(strings.ReplaceAll(s.Release+"-"+s.Desired.Name, ".", "-"), suffix),
			Labels: map[string]string{
				DeploymentLabel: LabelOf(s.Desired.Name), stageLabel: string(s.stage), hashLabel: s.hash(),
				attemptLabel: strconv.Itoa(attempt),
			},
			Annotations:     map[string]string{containerAnnotation: s.hook.ExecNewPod.ContainerName},
			OwnerReferences: s.owners(),
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: &timeout,
			Containers: []corev1.Container{s.container()}, Volumes: s.volumes(),
			ServiceAccountName:           cmp.Or(template.ServiceAccountName, template.DeprecatedServiceAccount),
			AutomountServiceAccountToken: template.AutomountServiceAccountToken,
			NodeSelector:                 template.NodeSelector, Tolerations: template.Tolerations,
			ImagePullSecrets: template.ImagePullSecrets,
			SecurityContext:  template.SecurityContext, PriorityClassName: template.PriorityClassName,
			RuntimeClassName: template.RuntimeClassName,
			SchedulerName:    template.SchedulerName, HostNetwork: template.HostNetwork, HostUsers: template.HostUsers,
			HostAliases: template.HostAliases,
			DNSPolicy:   template.DNSPolicy, DNSConfig: template.DNSConfig,
			EnableServiceLinks:            template.EnableServiceLinks,
			TerminationGracePeriodSeconds: template.TerminationGracePeriodSeconds,
		},
	}
	if s.hook.ServiceAccountName != "" {
		pod.Spec.ServiceAccountName = s.hook.ServiceAccountName
	}
	return pod
}

// owners returns the owner for garbage collection: the new ReplicaSet, once it exists. The owner is not a controller: a
// ReplicaSet releases pods that its selector does not match. Only the pod of a preview may have no owner yet.
func (s sequence) owners() []metav1.OwnerReference {
	switch live, set := s.facts.Live, s.facts.ReplicaSet; {
	case set != nil:
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID}}
	case live != nil:
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: live.Name, UID: live.UID}}
	default:
		return nil
	}
}

// container returns the container of the pod. The last lines of its log are in the pod's status if it fails.
func (s sequence) container() corev1.Container {
	exec, template := s.hook.ExecNewPod, corev1.Container{}
	for _, container := range s.Desired.Spec.Template.Spec.Containers {
		if container.Name == exec.ContainerName {
			template = container
		}
	}
	container := corev1.Container{
		Name: template.Name, Image: template.Image, ImagePullPolicy: template.ImagePullPolicy,
		WorkingDir: template.WorkingDir,
		Command:    exec.Command, Args: exec.Args, EnvFrom: template.EnvFrom, Env: joinedEnv(template.Env, exec.Env),
		Resources: template.Resources, SecurityContext: template.SecurityContext,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if s.hook.Resources != nil {
		container.Resources = *s.hook.Resources
	}
	container.Resources.Claims = nil // no device claims: the pod of the hook has no resource claims
	for _, mount := range template.VolumeMounts {
		if slices.Contains(exec.Volumes, mount.Name) {
			container.VolumeMounts = append(container.VolumeMounts, mount)
		}
	}
	for _, device := range template.VolumeDevices {
		if slices.Contains(exec.Volumes, device.Name) {
			container.VolumeDevices = append(container.VolumeDevices, device)
		}
	}
	return container
}

// joinedEnv appends variables to those of a container, instead of those with the same names.
func joinedEnv(container, hook []corev1.EnvVar) []corev1.EnvVar {
	isReplaced := func(envVar corev1.EnvVar) bool {
		return slices.ContainsFunc(hook, func(other corev1.EnvVar) bool { return other.Name == envVar.Name })
	}
	return append(slices.DeleteFunc(slices.Clone(container), isReplaced), hook...)
}

// volumes returns the volumes of the template that the hook lists.
func (s sequence) volumes() []corev1.Volume {
	var listed []corev1.Volume
	for _, volume := range s.Desired.Spec.Template.Spec.Volumes {
		if slices.Contains(s.hook.ExecNewPod.Volumes, volume.Name) {
			listed = append(listed, volume)
		}
	}
	return listed
}

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
			return fmt.Sprintf("pod %s has ended with exit code %d%s", pod.Name, ended.ExitCode,
				exitReason(ended.Reason))
		}
	}
	reason := strings.TrimRight(cmp.Or(pod.Status.Message, pod.Status.Reason, "its status has no reason"), ". ")
	return fmt.Sprintf("pod %s has failed: %s", pod.Name, printable.Line(reason))
}

// deletionOf describes the deletion of a pod before its end, with the reason if its status has it.
func deletionOf(pod *corev1.Pod) string {
	reason := ""
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			reason = printable.Line(condition.Message)
		}
	}
	return fmt.Sprintf("pod %s was deleted before it had ended%s", pod.Name, afterColon(reason))
}

// exitReason returns the reason of an exit code in parentheses, unless it only means that the code is not 0.
func exitReason(reason string) string {
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
			return "waits: " + printable.Line(waiting.Reason+afterColon(waiting.Message))
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

// afterColon returns a text with a colon in front; "" for an empty text.
func afterColon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
