package why

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The reasons why a release is not kept in place.
const (
	ReasonScaledDown   = "OperatorScaledDown"   // the operator's Deployment has no replicas
	ReasonNotAvailable = "OperatorNotAvailable" // no pod of the operator is available
	ReasonNotLeading   = "OperatorNotLeading"   // a pod of the operator is available, and does not hold the lock
	ReasonNotRead      = "ReleaseNotRead"       // the operator holds the lock, and has not read the release yet, or can't
	ReasonKeeperDied   = "KeeperDied"           // the process that kept the release has died, and no operator is installed
)

// operatorSelector selects the operator's Deployment, which package install labels. The operator keeps the record of its
// release in the namespace of its Deployment.
const operatorSelector = "app.kubernetes.io/name=runlevel-operator"

// A NotKept is why no process keeps a release in place, though one is to.
type NotKept struct {
	Reason     string     `json:"reason"`
	Message    string     `json:"message"`
	Since      *time.Time `json:"since,omitempty"`    // the last sign of life in the lock; absent if the lock was never taken, or is held by the operator
	Operator   *kinds.ID  `json:"operator,omitempty"` // its Deployment
	Pods       []string   `json:"pods,omitempty"`     // what keeps the pods of the operator
	Resolution string     `json:"resolution"`         // what to run
}

// String returns the message and the resolution.
func (n *NotKept) String() string { return n.Message + ": " + n.Resolution }

// Sentence returns the message on a release that has no record.
func (n *NotKept) Sentence() Message {
	return Message{Text: "no process applies it, or keeps it in place: " + n.String(), Details: n.Pods}
}

// ExplainNotKept returns why no process keeps a release without a record in place, if the operator is to, and the requests
// that failed.
func ExplainNotKept(ctx context.Context, c *cluster.Cluster, l lock.Lock) (*NotKept, []string) {
	g := &gatherer{cluster: c, trouble: &diagnosis.Diagnoser{Cluster: c}, ObjectQuery: ObjectQuery{Namespace: l.Namespace}, facts: &ObjectFacts{}}
	held, err := l.Holder(ctx)
	if err == nil {
		g.facts.NotKept = g.findNotKept(ctx, l, held)
	}
	return g.facts.NotKept, g.facts.Unknown
}

// keeping is a known result of findKeeper.
type keeping struct{ notKept *NotKept }

// findKeeper looks for the reason why no process keeps the release of the record in place, if one is to.
func (g *gatherer) findKeeper(ctx context.Context) {
	switch {
	case g.ObjectQuery.keeping != nil:
		g.facts.NotKept = g.ObjectQuery.keeping.notKept
	case g.facts.Record != nil && g.facts.IsHeldKnown:
		l := lock.Lock{Client: g.cluster.Client, Namespace: g.Namespace, Release: g.facts.Record.Release}
		g.facts.NotKept = g.findNotKept(ctx, l, g.facts.Held)
	}
}

// findNotKept returns why no process keeps a release in place: the operator is installed for it, or a process that kept it
// has died. A release that was applied once is not to be kept.
func (g *gatherer) findNotKept(ctx context.Context, l lock.Lock, held *lock.Holder) *NotKept {
	if held != nil && !held.IsDead(g.cluster.Now()) {
		return g.judgeHolder(ctx, l.Release, held)
	}
	found := g.judgeOperator(ctx, l.Release)
	switch {
	case found == nil && (held == nil || !held.Keeps()):
		return nil
	case found == nil:
		found = &NotKept{
			Reason: ReasonKeeperDied, Message: printable.Line(held.Name) + ", which kept it in place, has died",
			Resolution: `start it again: "runlevel install" the operator, or "runlevel apply --watch"`,
		}
	case held != nil:
		found.Message += "; " + printable.Line(held.Name) + ", which held the lock of the release, has died"
	}
	last, err := l.Last(ctx)
	switch {
	case err != nil:
		g.unknown("get leases in namespace "+l.Namespace, err)
	case last == nil:
		found.Message += "; no process has held the lock of the release yet"
	case !last.Renewed.IsZero():
		found.Since = new(last.Renewed.UTC())
	}
	return found
}

// judgeHolder returns why the operator does not keep the completed release whose lock it holds: it reads the release again
// after each of its starts, and the registry may be away. The record names the holder that has begun to keep it; records of
// older programs name none.
func (g *gatherer) judgeHolder(ctx context.Context, release string, held *lock.Holder) *NotKept {
	r := g.facts.Record
	if release != payload.DefaultName || !held.Keeps() || r == nil || r.KeptBy == held.Name || !g.facts.isCompleted() {
		return nil
	}
	in, err := g.cluster.FindKind(ctx, kinds.ClusterVersion)
	var found *unstructured.Unstructured
	if err == nil {
		found, err = g.cluster.In(in, "").Get(ctx, kinds.ClusterVersionName, metav1.GetOptions{})
	}
	switch {
	case errors.Is(err, cluster.ErrNotServed), apierrors.IsNotFound(err):
		return nil // the holder is an apply
	case err != nil:
		g.unknown("get clusterversions "+kinds.ClusterVersionName, err)
		return nil
	}
	var read configv1.ClusterVersion
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &read); err != nil {
		g.unknown("read ClusterVersion "+kinds.ClusterVersionName, err)
		return nil
	}
	holder := printable.Line(held.Name)
	if refusal := refusalOf(read, r.Newest().Source); refusal != "" {
		return &NotKept{
			Reason: ReasonNotRead, Message: fmt.Sprintf("%s holds its lock, and can't read it: %s", holder, printable.Line(refusal)),
			Resolution: "it tries again every minute; until then, nothing is repaired",
		}
	}
	if r.KeptBy == "" {
		return nil
	}
	return &NotKept{
		Reason: ReasonNotRead, Message: fmt.Sprintf("%s has held its lock for %s, and has not read it yet", holder, printable.Age(g.cluster.Now(), held.Since)),
		Resolution: "it is reading " + printable.Line(r.Newest().Source) + "; until then, nothing is repaired",
	}
}

// refusalOf returns why the operator has not accepted the release that it is to keep in place. Of another one that is
// requested, it may wait for the acceptance for long.
func refusalOf(v configv1.ClusterVersion, image string) string {
	accepted := v1helpers.FindStatusCondition(v.Status.Conditions, "ReleaseAccepted")
	if accepted == nil || accepted.Status != configv1.ConditionFalse || !strings.Contains(accepted.Message, fmt.Sprintf("image=%q", image)) {
		return ""
	}
	if _, failure, ok := strings.Cut(accepted.Message, " failure="); ok {
		return failure // the rest is about which release
	}
	return accepted.Message
}

// judgeOperator returns why the operator that is installed for a release does not hold its lock; nil if none is
// installed.
func (g *gatherer) judgeOperator(ctx context.Context, release string) *NotKept {
	if release != payload.DefaultName {
		return nil
	}
	in, err := g.cluster.FindKind(ctx, kinds.Deployment)
	var found *unstructured.UnstructuredList
	if err == nil {
		found, err = g.cluster.In(in, g.Namespace).List(ctx, metav1.ListOptions{LabelSelector: operatorSelector})
	}
	switch {
	case err != nil:
		g.unknown("list deployments in namespace "+g.Namespace, err)
		return nil
	case len(found.Items) == 0 || found.Items[0].GetDeletionTimestamp() != nil:
		return nil
	}
	deployment := &found.Items[0]
	id := &kinds.ID{Group: kinds.Deployment.Group, Kind: kinds.Deployment.Kind, Namespace: deployment.GetNamespace(), Name: deployment.GetName()}
	wanted, isSet, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	available, _, _ := unstructured.NestedInt64(deployment.Object, "status", "availableReplicas")
	n := &NotKept{Operator: id}
	switch {
	case isSet && wanted == 0:
		n.Reason, n.Message = ReasonScaledDown, fmt.Sprintf("the operator, %s, is scaled to 0 replicas", id)
		n.Resolution = fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=1", id.Namespace, id.Name)
	case available == 0:
		n.Reason, n.Message = ReasonNotAvailable, fmt.Sprintf("no pod of the operator, %s, is available", id)
		n.Resolution = fmt.Sprintf("runlevel why deployment/%s -n %s", id.Name, id.Namespace)
		n.Pods = g.pods(ctx, deployment)
	default:
		n.Reason, n.Message = ReasonNotLeading, fmt.Sprintf("the operator, %s, is available and does not hold the lock of the release", id)
		n.Resolution = fmt.Sprintf("kubectl -n %s logs deployment/%s", id.Namespace, id.Name)
	}
	return n
}

// explainUnkept adds why no process keeps a release in place, though one is to.
func explainUnkept(f *ObjectFacts, a *Answer) {
	since := ""
	if f.NotKept.Since != nil {
		since = ", for " + f.age(*f.NotKept.Since)
	}
	switch newest := f.Record.Newest(); {
	case newest == nil:
		a.addMessage(f.NotKept.Pods, "release %s was not applied yet, and no process is about to%s: %s", f.title(), since, f.NotKept)
	case newest.State == record.Completed:
		a.addMessage(f.NotKept.Pods, "release %s was %s, and is not kept in place%s: %s", f.title(), f.ended(*newest), since, f.NotKept)
	default:
		a.addMessage(f.NotKept.Pods, "release %s is not completed, and no process goes on with it%s: %s", f.title(), since, f.NotKept)
	}
}
