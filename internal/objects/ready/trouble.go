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

// A PodProblem is why a workload's pods do not come up.
type PodProblem struct {
	Object    string // "Pod namespace/name", or what can't make its pods: "ReplicaSet namespace/name"
	Container string // of a pod, if it is about one
	Message   string // in one line and lower case, as in a Verdict

	// WantsLog says that the container's last lines tell more: those of the one before
	// it, if Previous.
	WantsLog, Previous bool
}

// mostTroubles are as many as a user reads. More are seldom more than one.
const mostTroubles = 4

// PodProblems says why pods of one namespace do not come up, the most telling first. The events are
// those of these pods, of their claims, and of what makes them, a ReplicaSet or a Job: a quota
// stops pods that are not there. Pods that are alike are told of once.
//
// No values of environment variables are in what it says.
func PodProblems(pods []corev1.Pod, events []corev1.Event, on Dependencies) []PodProblem {
	newest := newestEvents(events)
	found, isTold := on.troublesOfNodes(pods)
	found = slices.Concat(found, on.troublesOfClaims(newest), on.troublesOfSecrets(pods), troublesOfMakers(newest))
	for i := range pods {
		ofPod := troublesOfPod(&pods[i], newest)
		if isTold[pods[i].Name] {
			continue
		}
		for j := range ofPod {
			if ofPod[j].rank == homeless {
				unfit := printable.Line(on.unfit(&pods[i]))
				ofPod[j].Message, ofPod[j].alike = ofPod[j].Message+unfit, ofPod[j].alike+unfit
			}
		}
		found = append(found, ofPod...)
	}
	found = group(found)
	if len(found) > mostTroubles {
		found = found[:mostTroubles]
	}
	told := make([]PodProblem, len(found))
	for i, f := range found {
		told[i] = f.PodProblem
		if f.pods > 1 {
			told[i].Message += fmt.Sprintf(" (%d %slike this)", f.pods, map[bool]string{true: "pods "}[f.rank != depends])
		}
	}
	return told
}

// A rank is how much a trouble tells: lower ones come first.
type rank int

const (
	ended     rank = iota // a container ran, and did not go well
	depends               // an object that pods depend on is missing, or not ready
	unstarted             // it can't be started
	unmade                // there is not even a pod
	homeless              // no node takes the pod
	unready               // it runs, and does not answer
	slow                  // it may only need more time
	past                  // another pod has taken its place
)

// A finding is a trouble of one pod, until those that are alike are made one.
type finding struct {
	PodProblem
	rank  rank
	alike string // is the same for the same trouble of other pods
	pods  int
}

// group makes one of findings that are alike, and puts them in order. The first by name
// stands for the others.
func group(all []finding) []finding {
	slices.SortStableFunc(all, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.Object, b.Object))
	})
	var groups []finding
	at := map[string]int{}
	for _, f := range all {
		key := fmt.Sprint(f.rank, "\n", f.Container, "\n", f.alike)
		if i, isKnown := at[key]; isKnown {
			groups[i].pods++
			continue
		}
		f.pods = 1
		at[key] = len(groups)
		groups = append(groups, f)
	}
	slices.SortStableFunc(groups, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.pods, a.pods))
	})
	return groups
}

// An occasion is what an event is about.
type occasion struct{ kind, namespace, name, reason string }

// newestEvents are the last events of each object and reason. What was so before that
// does not have to be so any more.
func newestEvents(events []corev1.Event) map[occasion]*corev1.Event {
	newest := map[occasion]*corev1.Event{}
	for i := range events {
		about := events[i].InvolvedObject
		key := occasion{about.Kind, about.Namespace, about.Name, events[i].Reason}
		if other := newest[key]; other == nil || timeOf(other).Before(timeOf(&events[i])) {
			newest[key] = &events[i]
		}
	}
	return newest
}

// timeOf is when an event was last seen. There are several fields for it, by age of who
// writes them.
func timeOf(event *corev1.Event) time.Time {
	times := []time.Time{event.EventTime.Time, event.LastTimestamp.Time, event.FirstTimestamp.Time, event.CreationTimestamp.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// troublesOfMakers are about what can't make its pods: because of a quota, a LimitRange, a
// webhook, pod security, or a ServiceAccount that is not there.
func troublesOfMakers(newest map[occasion]*corev1.Event) []finding {
	var found []finding
	for about, event := range newest {
		if about.reason != "FailedCreate" {
			continue
		}
		made := about
		made.reason = "SuccessfulCreate"
		if success := newest[made]; success != nil && timeOf(event).Before(timeOf(success)) {
			continue // it could after that
		}
		message := "can't make pods: " + sentence(strings.TrimPrefix(strings.TrimPrefix(event.Message, "(combined from similar events): "), "Error creating: "))
		found = append(found, finding{
			PodProblem: PodProblem{Object: fmt.Sprintf("%s %s/%s", about.kind, about.namespace, about.name), Message: sentence(message)},
			rank:       unmade, alike: about.name,
		})
	}
	return found
}
