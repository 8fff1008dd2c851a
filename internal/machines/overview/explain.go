package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// mostEvents is how many events are shown, the newest.
const mostEvents = 10

// A MachineExplanation explains the state of one machine.
type MachineExplanation struct {
	MachineOverview
	Statements []diagnosis.Message `json:"-"` // the most important first
}

// Explain returns the state of one machine, since when, what it waits for, what to do about it, and its events. It
// returns nil if the machine does not exist.
func Explain(ctx context.Context, c *cluster.Cluster, id kinds.ID) (*MachineExplanation, error) {
	g := &machineGatherer{cluster: c}
	q := MachineQuery{Namespace: id.Namespace, Names: []string{id.Name}}
	var explain func([]corev1.Event, time.Time) *MachineExplanation
	var object metav1.Object
	if id.Group == ClusterAPIKind.Group {
		facts, err := g.clusterAPIMachines(ctx, q)
		if err != nil || len(facts) == 0 {
			return nil, err
		}
		g.askDeployment(ctx, facts[0])
		g.askPlane(ctx, facts[0])
		object, explain = facts[0].machine, facts[0].explain
	} else {
		machines, err := objectsOf[machinev1beta1.Machine](ctx, g, Kind, q)
		if err != nil || len(machines) == 0 {
			return nil, err
		}
		f := g.facts(ctx, machines)[0]
		g.askControlPlane(ctx, f)
		object, explain = f.machine, f.explain
	}
	events, err := eventsOf(ctx, c, object)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m := explain(events, c.Now())
	if err != nil {
		m.Unknown = append(m.Unknown, inLine(requestError("list events in namespace "+id.Namespace, err)))
	}
	return m, nil
}

// explain returns the explanation of the machine.
func (f *machineFacts) explain(events []corev1.Event, now time.Time) *MachineExplanation {
	m := &MachineExplanation{MachineOverview: judge(f)}
	m.addHolds(f.standing(m.Stage), f.remedy, now)
	m.Statements = append(append(m.Statements, f.pods.statements()...), lateHooks(f, m.Stage)...)
	m.addReplacing(f.set.replacing(f.machine.Name))
	var conditions []metav1.Condition
	for _, c := range f.machine.Status.Conditions {
		conditions = append(conditions, metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: c.LastTransitionTime,
		})
	}
	m.addDetails(conditions, events, now)
	return m
}

// standing is the end of the first statement, about a missing node or a deletion that the controller has not noticed.
func (f *machineFacts) standing(stage deletion.Stage) string {
	text := ""
	if f.nodeName() != "" && f.nodes.byName != nil && f.node() == nil {
		text = ", which is gone"
	}
	if reported := f.machine.Status.Phase; stage != "" &&
		(reported == nil || *reported != machinev1beta1.PhaseDeleting) {
		text += "; the machine controller has not noticed the deletion yet"
	}
	return text
}

// statements returns a statement for each pod that is left to end with the node.
func (p *nodePods) statements() []diagnosis.Message {
	if p == nil {
		return nil
	}
	var statements []diagnosis.Message
	for _, pod := range p.staying {
		statements = append(statements, diagnosis.Message{
			Text: fmt.Sprintf("pod %s/%s was scheduled after its node was cordoned, and tolerates that (toleration "+
				"%s): it is left to end with the node",
				pod.Namespace, pod.Name, pod.Toleration),
			Details: []string{"nothing is to be done; to keep such pods off nodes that are drained, remove the " +
				"toleration from their workload"},
		})
	}
	return statements
}

// lateHooks returns a statement for each hook whose stage is over: it holds nothing, though conditions show it.
func lateHooks(f *machineFacts, stage deletion.Stage) []diagnosis.Message {
	if !f.isDeleting() {
		return nil
	}
	hooks := f.machine.Spec.LifecycleHooks
	var statements []diagnosis.Message
	add := func(of MachineHoldType, hooks []machinev1beta1.LifecycleHook, over string,
		condition machinev1beta1.ConditionType) {
		for _, hold := range f.hookHolds(of, hooks, nil) {
			statements = append(statements, diagnosis.Message{
				Text: fmt.Sprintf("%s came too late, and holds nothing: %s", hold.sentence(), over),
				Details: []string{fmt.Sprintf(
					"the condition %s is False for as long as the hook is there, and no step looks at it", condition,
				)},
			})
		}
	}
	switch stage {
	case deletion.Terminating, deletion.RemovingNode, deletion.Completed:
		add(PreDrainHook, hooks.PreDrain, "the drain is over", machinev1beta1.MachineDrainable)
		add(PreTerminateHook, hooks.PreTerminate, "the delete of its infrastructure was asked for",
			machinev1beta1.MachineTerminable)
	case deletion.BeforeTerminate:
		add(PreDrainHook, hooks.PreDrain, "the drain is over", machinev1beta1.MachineDrainable)
	}
	return statements
}

// addHolds adds the state of a machine, what holds it, and what to do about that.
func (m *MachineExplanation) addHolds(standing string, remedy func(*MachineHold) []string, now time.Time) {
	text := "its phase is " + m.Phase
	if m.Phase == machinev1beta1.PhaseDeleting {
		text = "it is being deleted"
	}
	text += ", for " + age(now, m.Since)
	if m.Node != "" {
		text += "; its node is " + m.Node
	}
	m.Statements = append(m.Statements, diagnosis.Message{Text: text + standing})
	for i := range m.Holds {
		m.Statements = append(m.Statements, m.Holds[i].statement(remedy(&m.Holds[i]), now))
	}
}

// addReplacing adds what becomes of a machine of a control plane, unless the text is empty.
func (m *MachineExplanation) addReplacing(text string, details []string) {
	if text != "" {
		m.Statements = append(m.Statements, diagnosis.Message{Text: text, Details: details})
	}
}

// addDetails adds later hooks, and the conditions and events of the machine.
func (m *MachineExplanation) addDetails(conditions []metav1.Condition, events []corev1.Event, now time.Time) {
	for i := range m.Later {
		text := fmt.Sprintf("later, after the drain, %s holds it", m.Later[i].sentence())
		m.Statements = append(m.Statements, diagnosis.Message{Text: text})
	}
	var lines []string
	for _, c := range conditions {
		lines = append(lines, conditionLine(c, now))
	}
	if len(lines) > 0 {
		m.Statements = append(m.Statements, diagnosis.Message{Text: "its conditions:", Details: lines})
	}
	if lines := eventLines(events, now); len(lines) > 0 {
		m.Statements = append(m.Statements, diagnosis.Message{Text: "its events:", Details: lines})
	}
}

// conditionLine returns a condition in a line.
func conditionLine(c metav1.Condition, now time.Time) string {
	line := fmt.Sprintf("%s=%s", c.Type, c.Status)
	if c.Reason != "" {
		line += " (" + c.Reason + ")"
	}
	line += ", for " + age(now, c.LastTransitionTime.Time)
	if c.Message != "" {
		line += ": " + c.Message
	}
	return line
}

// eventsOf returns the newest events about a machine, the oldest of them first.
func eventsOf(ctx context.Context, c *cluster.Cluster, m metav1.Object) ([]corev1.Event, error) {
	about := fields.OneTermEqualSelector("involvedObject.uid", string(m.GetUID()))
	list, err := c.Client.CoreV1().Events(m.GetNamespace()).List(ctx,
		metav1.ListOptions{FieldSelector: about.String(), Limit: 500})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	return list.Items[max(0, len(list.Items)-mostEvents):], nil
}

// eventTime is when an event was seen last: there are two APIs of events.
func eventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}

// eventLines returns a line for each event.
func eventLines(events []corev1.Event, now time.Time) []string {
	var lines []string
	for i := range events {
		e := &events[i]
		line := fmt.Sprintf("%s ago %s: %s", age(now, eventTime(e)), e.Reason, strings.TrimSpace(e.Message))
		count := e.Count
		if e.Series != nil {
			count = e.Series.Count
		}
		if count > 1 {
			line += fmt.Sprintf(" (%d times)", count)
		}
		if by := cmp.Or(e.ReportingController, e.Source.Component); by != "" {
			line += ", by " + by
		}
		lines = append(lines, line)
	}
	return lines
}

// age is the time from since to now.
func age(now, since time.Time) string { return duration.HumanDuration(max(now.Sub(since), 0)) }
