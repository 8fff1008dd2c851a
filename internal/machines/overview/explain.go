package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/typedread"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// maxEvents limits how many events are shown. Older ones are left out.
const maxEvents = 10

// Explain returns why a machine or a control plane waits, since when, how an administrator can resolve that, and
// its conditions and events. It returns nil if the object does not exist.
func Explain(ctx context.Context, c *cluster.Cluster, id kinds.ID) (*diagnosis.Explanation, error) {
	g := &gatherer{cluster: c}
	explainers := map[string]func(context.Context, kinds.ID) (*objectExplanation, error){
		Kind.String():                       g.explainOpenshiftMachine,
		ClusterAPIKind.String():             g.explainClusterAPIMachine,
		ControlPlaneMachineSetKind.String(): g.explainSet,
		RunlevelControlPlaneKind.String():   g.explainPlane,
	}
	explained, err := explainers[id.GroupKind().String()](ctx, id)
	if explained == nil || err != nil {
		return nil, err
	}
	events, err := newestEvents(ctx, c, explained.object)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	e := explained.explanation
	if err != nil {
		e.Unknown = append(e.Unknown, errorLine(typedread.RequestError("list events in namespace "+id.Namespace, err)))
	}
	var lines []string
	for _, condition := range explained.conditions {
		lines = append(lines, conditionLine(condition, c.Now()))
	}
	if len(lines) > 0 {
		e.Add("its conditions:", lines...)
	}
	if lines := eventLines(events, c.Now()); len(lines) > 0 {
		e.Add("its events:", lines...)
	}
	return e, nil
}

// An objectExplanation is an object with its explanation, which lacks the conditions and the events.
type objectExplanation struct {
	object      metav1.Object
	conditions  []metav1.Condition
	explanation *diagnosis.Explanation
}

func (g *gatherer) explainOpenshiftMachine(ctx context.Context, id kinds.ID) (*objectExplanation, error) {
	machines, err := g.openshiftMachines(ctx, Query{Namespace: id.Namespace, Names: []string{id.Name}})
	if err != nil || len(machines) == 0 {
		return nil, err
	}
	f := machines[0]
	sets, err := g.controlPlaneMachineSets(ctx, id.Namespace)
	if err != nil {
		f.unknown = append(f.unknown, errorLine(err))
	}
	f.set = setOf(f.machine, sets)
	return &objectExplanation{f.machine, f.statusConditions(), f.explain(g.cluster.Now())}, nil
}

func (g *gatherer) explainClusterAPIMachine(ctx context.Context, id kinds.ID) (*objectExplanation, error) {
	machines, err := g.clusterAPIMachines(ctx, Query{Namespace: id.Namespace, Names: []string{id.Name}})
	if err != nil || len(machines) == 0 {
		return nil, err
	}
	f := machines[0]
	f.readDeployment(ctx, g)
	f.readPlane(ctx, g)
	return &objectExplanation{f.machine, f.machine.Status.Conditions, f.explain(g.cluster.Now())}, nil
}

func (g *gatherer) explainSet(ctx context.Context, id kinds.ID) (*objectExplanation, error) {
	sets, err := g.controlPlaneMachineSets(ctx, id.Namespace)
	for _, f := range sets {
		if f.set.Name == id.Name {
			return &objectExplanation{f.set, f.set.Status.Conditions, f.explain(ctx, g)}, err
		}
	}
	return nil, err
}

func (g *gatherer) explainPlane(ctx context.Context, id kinds.ID) (*objectExplanation, error) {
	planes, err := g.runlevelControlPlanes(ctx, id.Namespace)
	for _, f := range planes {
		if f.plane.Name == id.Name {
			return &objectExplanation{f.plane, f.plane.Status.Conditions, f.explain(ctx, g)}, err
		}
	}
	return nil, err
}

// explanation returns the state and the holds of the machine. The suffix ends the first message.
func (m *Machine) explanation(suffix string, now time.Time) *diagnosis.Explanation {
	e := &diagnosis.Explanation{Unknown: m.Unknown, IsDone: m.IsDone(), IsTerminating: m.Stage != ""}
	text := "its phase is " + m.Phase
	if m.Phase == "Deleting" {
		text = "it is being deleted"
	}
	text += ", for " + age(now, m.Since)
	if m.Node != "" {
		text += "; its node is " + m.Node
	}
	e.Add(text + suffix)
	for i := range m.Holds {
		e.Messages = append(e.Messages, m.Holds[i].message(now))
	}
	return e
}

// addLater adds the hooks of later stages.
func (m *Machine) addLater(e *diagnosis.Explanation) {
	for i := range m.Later {
		e.Add(fmt.Sprintf("later, after the drain, %s holds it", m.Later[i].title()))
	}
}

// explanation returns the state of the control plane. The word for a machine that counts in Ready
// is ready.
func (c *ControlPlane) explanation(ready string) *diagnosis.Explanation {
	e := &diagnosis.Explanation{IsDone: c.Waits == ""}
	e.Add(fmt.Sprintf("it is %s (%s): %d machines are desired, %d are up to date, %d are %s",
		c.State, c.Strategy, c.Desired, c.Updated, c.Ready, ready))
	return e
}

// addWaits adds the reason why the control plane waits.
func (c *ControlPlane) addWaits(e *diagnosis.Explanation) {
	if c.Waits != "" {
		e.Add("it waits: "+c.Waits, c.remedy...)
	}
}

// addAwaited adds the holds of a machine that the control plane waits for.
func addAwaited(e *diagnosis.Explanation, m Machine, now time.Time) {
	e.Unknown = append(e.Unknown, m.Unknown...)
	for i := range m.Holds {
		message := m.Holds[i].message(now)
		e.Add(fmt.Sprintf("machine %s (%s): %s", m.Name, m.Phase, strings.TrimPrefix(message.Text, "it ")),
			message.Details...)
	}
}

// addMembers adds the machines of the control plane, with the fields that are outdated.
func (c *ControlPlane) addMembers(e *diagnosis.Explanation) {
	var lines []string
	for _, member := range c.members {
		lines = append(lines, member.text)
	}
	if len(lines) > 0 {
		e.Add("its machines:", lines...)
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

// newestEvents returns the newest events about an object, the oldest first.
func newestEvents(ctx context.Context, c *cluster.Cluster, object metav1.Object) ([]corev1.Event, error) {
	selector := fields.OneTermEqualSelector("involvedObject.uid", string(object.GetUID()))
	options := metav1.ListOptions{FieldSelector: selector.String(), Limit: 500}
	list, err := c.Client.CoreV1().Events(object.GetNamespace()).List(ctx, options)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	return list.Items[max(0, len(list.Items)-maxEvents):], nil
}

// eventTime returns when an event was last observed: there are two APIs of events.
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

// age returns the time between two moments, for humans.
func age(now, since time.Time) string { return duration.HumanDuration(max(now.Sub(since), 0)) }
