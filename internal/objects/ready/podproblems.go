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

// A PodProblem prevents pods of a workload from becoming ready.
type PodProblem struct {
	Object    string // "Pod namespace/name", or the owner that can't create pods: "ReplicaSet namespace/name"
	Container string // the container of the pod with the problem; "" if the whole pod has it
	Message   string // one line in lower case, as in a Verdict

	// WantsLog is true if the container's log has more details: the log of the previous
	// container, if Previous.
	WantsLog, Previous bool
}

// maxProblems limits the problems of a workload. Further problems rarely have another cause.
const maxProblems = 4

// PodProblems returns the problems of pods in one namespace, the most important first. The events
// are about these pods, their claims and their owner, a ReplicaSet or a Job, whose pods a quota may
// refuse. Pods with the same problem are reported once.
//
// The messages contain no values of environment variables.
func PodProblems(pods []corev1.Pod, events []corev1.Event, on Dependencies) []PodProblem {
	newest := newestEvents(events)
	found, isReported := on.problemsOfNodes(pods)
	found = slices.Concat(found, on.problemsOfClaims(newest), on.problemsOfSecrets(pods), problemsOfOwners(newest))
	for i := range pods {
		podProblems := problemsOfPod(&pods[i], newest)
		if isReported[pods[i].Name] {
			continue
		}
		for j := range podProblems {
			if podProblems[j].rank == unscheduled {
				unfit := printable.Line(on.unschedulableNodes(&pods[i]))
				podProblems[j].Message, podProblems[j].alike = podProblems[j].Message+unfit, podProblems[j].alike+unfit
			}
		}
		found = append(found, podProblems...)
	}
	found = group(found)
	if len(found) > maxProblems {
		found = found[:maxProblems]
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

// A rank is the importance of a problem: lower ranks come first.
type rank int

const (
	ended       rank = iota // a container ran and failed
	depends                 // a dependency of the pods is missing or not ready
	unstarted               // a container can't be started
	uncreated               // no pod can be created
	unscheduled             // the pod can't be scheduled
	unready                 // a container runs, and is not ready
	slow                    // the pod may only need more time
	past                    // another pod replaces the failed one
)

// A rankedProblem is a problem of one pod, before grouping.
type rankedProblem struct {
	PodProblem
	rank  rank
	alike string // the grouping key: equal for the same problem of other pods
	pods  int
}

// group groups problems with the same key, and orders them. The first object by name represents
// the group.
func group(all []rankedProblem) []rankedProblem {
	slices.SortStableFunc(all, func(a, b rankedProblem) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.Object, b.Object))
	})
	var groups []rankedProblem
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
	slices.SortStableFunc(groups, func(a, b rankedProblem) int {
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

// timeOf returns the time of the last observation of an event, for which old and new clients use
// different fields.
func timeOf(event *corev1.Event) time.Time {
	times := []time.Time{event.EventTime.Time, event.LastTimestamp.Time, event.FirstTimestamp.Time,
		event.CreationTimestamp.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// problemsOfOwners returns the problems of owners that can't create pods: because of a quota,
// a LimitRange, a webhook, pod security, or a missing ServiceAccount.
func problemsOfOwners(newest map[eventKey]*corev1.Event) []rankedProblem {
	var found []rankedProblem
	for about, event := range newest {
		if about.reason != "FailedCreate" {
			continue
		}
		creation := about
		creation.reason = "SuccessfulCreate"
		if success := newest[creation]; success != nil && timeOf(event).Before(timeOf(success)) {
			continue // the owner has created a pod since
		}
		message := "can't make pods: " +
			sentence(strings.TrimPrefix(strings.TrimPrefix(event.Message, "(combined from similar events): "),
				"Error creating: "))
		found = append(found, rankedProblem{
			PodProblem: PodProblem{
				Object:  fmt.Sprintf("%s %s/%s", about.kind, about.namespace, about.name),
				Message: sentence(message),
			},
			rank: uncreated, alike: about.name,
		})
	}
	return found
}
