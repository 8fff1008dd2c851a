package ready

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// problemsOfPod returns the problems of an unready pod.
func problemsOfPod(pod *corev1.Pod, newest map[eventKey]*corev1.Event) []rankedProblem {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
		return nil
	}
	p := podView{pod: pod, newest: newest}
	if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason == "" { // otherwise the node has ended its containers
		p.addContainers()
	}
	if len(p.problems) == 0 {
		p.addPod()
	}
	if pod.Status.Phase == corev1.PodFailed && isOfReplicaSet(pod) {
		for i := range p.problems {
			p.problems[i].rank = past
		}
	}
	return p.problems
}

// isOfReplicaSet reports whether a ReplicaSet owns a pod. It replaces a failed pod without
// deleting it.
func isOfReplicaSet(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "ReplicaSet"
	})
}

// A podView collects the problems of one pod.
type podView struct {
	pod      *corev1.Pod
	newest   map[eventKey]*corev1.Event
	problems []rankedProblem
}

func (p *podView) addContainers() {
	for i := range p.pod.Status.InitContainerStatuses {
		p.addInitContainer(&p.pod.Status.InitContainerStatuses[i])
	}
	for i := range p.pod.Status.ContainerStatuses {
		p.addContainer("container", &p.pod.Status.ContainerStatuses[i])
	}
}

// addPod adds the problem of a pod whose containers have not failed.
func (p *podView) addPod() {
	status := &p.pod.Status
	scheduled, ready := podCondition(status, corev1.PodScheduled), podCondition(status, corev1.PodReady)
	obstacle := p.obstacle()
	switch {
	case status.Phase == corev1.PodFailed:
		p.add(ended, "it has failed: %s",
			condition{reason: status.Reason, message: status.Message}.reasonAndMessage("the node reports no reason"))
	case scheduled.Status == corev1.ConditionFalse:
		p.add(unscheduled, "%s", unscheduledMessage(condition{reason: scheduled.Reason, message: scheduled.Message}))
	case ready.Status == corev1.ConditionTrue:
	case p.pod.Spec.NodeName == "":
		p.add(slow, "no scheduler has looked at it yet")
	case len(status.ContainerStatuses) == 0 && obstacle == "":
		p.add(slow, "node %s has not begun with it yet", p.pod.Spec.NodeName)
	case status.Phase == corev1.PodRunning:
		p.add(unready, "it is not ready: %s",
			sentence(cmp.Or(ready.Message, ready.Reason, "the node reports no reason")))
	case obstacle != "":
		p.add(unstarted, "its containers can't be created: %s", obstacle)
	default:
		p.add(slow, "its containers are not created yet%s", p.progress())
	}
}

func (p *podView) add(rank rank, format string, args ...any) *rankedProblem {
	return p.addFor("", rank, format, args...)
}

// addFor adds a problem of a container. The grouping key leaves out the name of the pod.
func (p *podView) addFor(container string, rank rank, format string, args ...any) *rankedProblem {
	message := sentence(fmt.Sprintf(format, args...))
	p.problems = append(p.problems, rankedProblem{
		PodProblem: PodProblem{
			Object:    "Pod " + p.pod.Namespace + "/" + p.pod.Name,
			Container: container,
			Message:   message,
		},
		rank: rank, alike: strings.ReplaceAll(message, p.pod.Name, ""),
	})
	return &p.problems[len(p.problems)-1]
}

// addInitContainer adds the problem of an init container. Sidecars are checked as containers.
func (p *podView) addInitContainer(status *corev1.ContainerStatus) {
	isStaying := slices.ContainsFunc(p.pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == status.Name && c.RestartPolicy != nil &&
			*c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
	last := status.LastTerminationState.Terminated
	if isStaying || status.State.Running == nil || last != nil && last.ExitCode != 0 {
		p.addContainer("init container", status)
		return
	}
	p.addFor(status.Name, slow, "init container %s still runs", status.Name).WantsLog = true
}

// addContainer adds the problem of a container or init container, if it has one.
func (p *podView) addContainer(kind string, status *corev1.ContainerStatus) {
	name := kind + " " + status.Name
	waiting, last := status.State.Waiting, status.LastTerminationState.Terminated
	switch now := status.State.Terminated; {
	case now != nil && now.ExitCode != 0:
		p.addFor(status.Name, ended, "%s ended with %s", name, exit(now)).WantsLog = true
	case now == nil && status.Ready && p.crashesEarly(status):
		p.addCrash(name, status)
	case now != nil || status.Ready:
	case waiting != nil && slices.Contains(pullFailures, waiting.Reason):
		p.addFor(status.Name, unstarted, "%s"+pullFailed+"%s: %s", name, status.Image,
			sentence(cmp.Or(waiting.Message, waiting.Reason)))
	case waiting != nil && waiting.Reason == "CrashLoopBackOff":
		p.addCrash(name, status)
	case waiting != nil && !isIdle(waiting.Reason):
		p.addFor(status.Name, unstarted, "%s can't start: %s", name,
			p.withoutValues(sentence(cmp.Or(waiting.Message, waiting.Reason))))
	case last != nil && last.ExitCode != 0:
		p.addCrash(name, status)
	case status.State.Running != nil:
		p.addUnready(name, status)
	}
}

// crashesEarly reports whether a ready container has crashed again and again since its pod was
// created, a few minutes ago: without a probe it is ready each time until the next crash.
func (p *podView) crashesEarly(status *corev1.ContainerStatus) bool {
	const early = 10 * time.Minute
	now, last, created := status.State.Running, status.LastTerminationState.Terminated, p.pod.CreationTimestamp
	return now != nil && last != nil && last.ExitCode != 0 && status.RestartCount > 1 && !created.IsZero() &&
		now.StartedAt.Sub(created.Time) < early
}

// isIdle reports whether a container waits for its node or for another container.
func isIdle(reason string) bool {
	return reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"
}

// IsImageMissing reports whether the message of a PodProblem is about an image that can't be pulled. Another apply of
// the same release does not resolve that.
func IsImageMissing(message string) bool { return strings.Contains(message, pullFailed) }

const pullFailed = " can't pull image "

// pullFailures are the waiting reasons of containers without an image.
var pullFailures = []string{
	"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull",
	"ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
}

// addCrash adds the problem of a container that crashes repeatedly. The grouping key
// leaves out the number of restarts.
func (p *podView) addCrash(name string, status *corev1.ContainerStatus) {
	f := p.addFor(status.Name, ended, "%s crashes: %s", name, exit(status.LastTerminationState.Terminated))
	if status.RestartCount > 0 {
		f.Message += ", " + printable.Count(int(status.RestartCount), "restart")
	}
	f.WantsLog, f.Previous = true, true
}

// exit describes the end of a container.
func exit(last *corev1.ContainerStateTerminated) string {
	switch {
	case last == nil:
		return "the exit code is not known"
	case last.Reason == "" || last.Reason == "Error" || last.Reason == "Completed":
		return fmt.Sprintf("exit code %d", last.ExitCode)
	default: // OOMKilled, ContainerCannotRun
		return fmt.Sprintf("%s, exit code %d", last.Reason, last.ExitCode)
	}
}

// addUnready adds the problem of an unready container. The message does not quote the
// output of the probe.
func (p *podView) addUnready(name string, status *corev1.ContainerStatus) {
	why := ""
	if p.newest[p.eventKey("Unhealthy")] != nil {
		why = ": its probe fails"
	}
	p.addFor(status.Name, unready, "%s runs, but is not ready%s", name, why).WantsLog = true
}

// obstacles are the reasons of events of a node that can't create containers, the most
// specific first.
var obstacles = []string{
	"FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "FailedPodSandBoxStatus",
	"NetworkNotReady",
}

// obstacle returns the message of the kubelet's event about a pod.
func (p *podView) obstacle() string {
	for _, reason := range obstacles {
		if event := p.newest[p.eventKey(reason)]; event != nil {
			return p.withoutValues(sentence(event.Message))
		}
	}
	return ""
}

// progress returns the last action of the pod's node.
func (p *podView) progress() string {
	pulling, pulled := p.newest[p.eventKey("Pulling")], p.newest[p.eventKey("Pulled")]
	if pulling != nil && (pulled == nil || timeOf(pulled).Before(timeOf(pulling))) {
		return ": node " + p.pod.Spec.NodeName + " is " + sentence(pulling.Message)
	}
	return ", and node " + p.pod.Spec.NodeName + " reports no reason"
}

func (p *podView) eventKey(reason string) eventKey {
	return eventKey{"Pod", p.pod.Namespace, p.pod.Name, reason}
}

// withoutValues masks the values of the pod's environment variables: a node may quote a
// command that contains them. Shorter values are words and numbers.
func (p *podView) withoutValues(message string) string {
	const shortest = 4
	for _, containers := range [][]corev1.Container{p.pod.Spec.InitContainers, p.pod.Spec.Containers} {
		for _, container := range containers {
			for _, variable := range container.Env {
				if value := strings.Join(strings.Fields(variable.Value), " "); len(value) >= shortest {
					message = strings.ReplaceAll(message, value, "***")
				}
			}
		}
	}
	return message
}

// podCondition returns a condition of a pod; an empty one if there is none.
func podCondition(status *corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.PodCondition{}
	}
	return status.Conditions[i]
}
