package ready

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A PodProblem is why a workload's pods do not become ready.
type PodProblem struct {
	Object    string // "Pod namespace/name", or the owner that can't create pods: "ReplicaSet namespace/name"
	Container string // of the pod, if the problem is about a container
	Message   string // in one line and lower case, as in a Verdict

	// WantsLog is true if the container's log has more details: the log of the previous
	// container, if Previous.
	WantsLog, Previous bool
}

// maxTroubles bounds the problems of a workload. More rarely have different causes.
const maxTroubles = 4

// PodProblems returns why pods of one namespace do not become ready, the most important first. The
// events are those of these pods, of their claims, and of their owner, a ReplicaSet or a Job: a
// quota prevents pods from being created. Pods with the same problem are reported once.
//
// The messages contain no values of environment variables.
func PodProblems(pods []corev1.Pod, events []corev1.Event, on Dependencies) []PodProblem {
	newest := newestEvents(events)
	found, isReported := on.troublesOfNodes(pods)
	found = slices.Concat(found, on.troublesOfClaims(newest), on.troublesOfSecrets(pods), troublesOfOwners(newest))
	for i := range pods {
		ofPod := troublesOfPod(&pods[i], newest)
		if isReported[pods[i].Name] {
			continue
		}
		for j := range ofPod {
			if ofPod[j].rank == unscheduled {
				unfit := printable.Line(on.unfit(&pods[i]))
				ofPod[j].Message, ofPod[j].alike = ofPod[j].Message+unfit, ofPod[j].alike+unfit
			}
		}
		found = append(found, ofPod...)
	}
	found = group(found)
	if len(found) > maxTroubles {
		found = found[:maxTroubles]
	}
	problems := make([]PodProblem, len(found))
	for i, f := range found {
		problems[i] = f.PodProblem
		if f.pods > 1 {
			problems[i].Message += fmt.Sprintf(" (%d %slike this)", f.pods,
				map[bool]string{true: "pods "}[f.rank != depends])
		}
	}
	return problems
}

// A rank is the importance of a trouble: lower ranks come first.
type rank int

const (
	ended       rank = iota // a container ran and failed
	depends                 // a dependency of the pods is missing or not ready
	unstarted               // a container can't be started
	uncreated               // no pod can be created
	unscheduled             // the pod can't be scheduled
	unready                 // a container runs, and is not ready
	slow                    // it may only need more time
	past                    // another pod has taken its place
)

// A finding is a trouble of one pod, before grouping.
type finding struct {
	PodProblem
	rank  rank
	alike string // the grouping key: equal for the same trouble of other pods
	pods  int
}

// group groups findings with the same key, and orders them. The first by name represents
// its group.
func group(all []finding) []finding {
	slices.SortStableFunc(all, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.Object, b.Object))
	})
	var groups []finding
	values := map[string]int{}
	for _, f := range all {
		key := fmt.Sprint(f.rank, "\n", f.Container, "\n", f.alike)
		if i, isKnown := values[key]; isKnown {
			groups[i].pods++
			continue
		}
		f.pods = 1
		values[key] = len(groups)
		groups = append(groups, f)
	}
	slices.SortStableFunc(groups, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.pods, a.pods))
	})
	return groups
}

// An eventKey is the object and the reason of an event.
type eventKey struct{ kind, namespace, name, reason string }

// newestEvents returns the last event of each object and reason. Earlier events may be
// outdated.
func newestEvents(events []corev1.Event) map[eventKey]*corev1.Event {
	newest := map[eventKey]*corev1.Event{}
	for i := range events {
		about := events[i].InvolvedObject
		key := eventKey{about.Kind, about.Namespace, about.Name, events[i].Reason}
		if other := newest[key]; other == nil || timeOf(other).Before(timeOf(&events[i])) {
			newest[key] = &events[i]
		}
	}
	return newest
}

// timeOf returns when an event was last observed. Old and new clients use different
// fields for it.
func timeOf(event *corev1.Event) time.Time {
	times := []time.Time{event.EventTime.Time, event.LastTimestamp.Time, event.FirstTimestamp.Time,
		event.CreationTimestamp.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// troublesOfOwners returns findings about owners that can't create pods: because of a quota,
// a LimitRange, a webhook, pod security, or a missing ServiceAccount.
func troublesOfOwners(newest map[eventKey]*corev1.Event) []finding {
	var found []finding
	for about, event := range newest {
		if about.reason != "FailedCreate" {
			continue
		}
		made := about
		made.reason = "SuccessfulCreate"
		if success := newest[made]; success != nil && timeOf(event).Before(timeOf(success)) {
			continue // it succeeded after that
		}
		message := "can't make pods: " +
			sentence(strings.TrimPrefix(strings.TrimPrefix(event.Message, "(combined from similar events): "),
				"Error creating: "))
		found = append(found, finding{
			PodProblem: PodProblem{
				Object:  fmt.Sprintf("%s %s/%s", about.kind, about.namespace, about.name),
				Message: sentence(message),
			},
			rank: uncreated, alike: about.name,
		})
	}
	return found
}
