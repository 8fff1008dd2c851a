package why

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The reasons why a release is not kept in place.
const (
	ReasonScaledDown   = "OperatorScaledDown"   // the operator's Deployment has no replicas
	ReasonNotAvailable = "OperatorNotAvailable" // no pod of the operator is available
	ReasonNotLeading   = "OperatorNotLeading"   // a pod of the operator is available, and does not hold the lock
	// the operator holds the lock, and has not read the release yet, or can't
	ReasonNotRead    = "ReleaseNotRead"
	ReasonKeeperDied = "KeeperDied" // the process that kept the release has died, and no operator is installed
)

// operatorSelector selects the operator's Deployment, which package install labels. The operator keeps the record of
// its release in the namespace of its Deployment.
const operatorSelector = "app.kubernetes.io/name=runlevel-operator"

// A NotKept is why no process keeps a release in place, though one is to.
type NotKept struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// the last renewal of the lock; absent if the lock was never taken, or is held by the operator
	Since      *time.Time `json:"since,omitempty"`
	Operator   *kinds.ID  `json:"operator,omitempty"` // its Deployment
	Pods       []string   `json:"pods,omitempty"`     // the problems of the pods of the operator
	Resolution string     `json:"resolution"`         // the command to run
}

// String returns the message and the resolution.
func (n *NotKept) String() string { return n.Message + ": " + n.Resolution }

// Sentence returns the message on a release that has no record.
func (n *NotKept) Sentence() Message {
	return Message{Text: "no process applies it, or keeps it in place: " + n.String(), Details: n.Pods}
}

// GatherKeeper reads who applies a release, or keeps it in place, and why no process does, though one is to. The record
// is nil if the release has none.
func GatherKeeper(ctx context.Context, c *cluster.Cluster, l lock.Lock, rec *record.Record) *ReleaseFacts {
	r := newReader(c)
	facts := r.keeper(ctx, l, rec)
	facts.Now, facts.Unknown = c.Now(), r.failed
	return &facts
}

// keeper reads who applies a release, or keeps it in place.
func (r *reader) keeper(ctx context.Context, l lock.Lock, rec *record.Record) ReleaseFacts {
	f := ReleaseFacts{Record: rec}
	if rec != nil {
		f.Run = apply.StateOf(rec.Run)
	}
	held, err := l.Holder(ctx)
	if err != nil {
		r.unknown("get leases in namespace "+l.Namespace, err)
		return f
	}
	f.Held, f.IsHeldKnown = held, true
	f.NotKept = r.findNotKept(ctx, l, &f)
	return f
}

// findNotKept returns why no process keeps a release in place: the operator is installed for it, or a process that kept
// it has died. A release that was applied once is not to be kept.
func (r *reader) findNotKept(ctx context.Context, l lock.Lock, f *ReleaseFacts) *NotKept {
	held := f.Held
	if held != nil && !held.IsDead(r.cluster.Now()) {
		return r.judgeHolder(ctx, l.Release, f)
	}
	found := r.judgeOperator(ctx, l)
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
		r.unknown("get leases in namespace "+l.Namespace, err)
	case last == nil:
		found.Message += "; no process has held the lock of the release yet"
	case !last.Renewed.IsZero():
		found.Since = new(last.Renewed.UTC())
	}
	return found
}

// judgeHolder returns why the operator does not keep the completed release whose lock it holds. The operator reloads
// the release after a restart, and the registry may be unavailable. The record names the holder that has begun to keep
// the release; records of older versions name none.
func (r *reader) judgeHolder(ctx context.Context, release string, f *ReleaseFacts) *NotKept {
	held, rec := f.Held, f.Record
	if release != payload.DefaultName || !held.Keeps() || rec == nil || rec.KeptBy == held.Name || !f.wasCompleted() {
		return nil
	}
	read, err := ReadClusterVersion(ctx, r.cluster)
	switch {
	case errors.Is(err, cluster.ErrNotServed), apierrors.IsNotFound(err):
		return nil // the holder is an apply
	case err != nil:
		r.unknown("get clusterversions "+kinds.ClusterVersionName, err)
		return nil
	}
	holder := printable.Line(held.Name)
	if refusal := refusalOf(read, rec.Newest().Source); refusal != "" {
		return &NotKept{
			Reason: ReasonNotRead, Message: fmt.Sprintf("%s holds its lock, and can't read it: %s", holder,
				printable.Line(refusal)),
			Resolution: "it tries again every minute; until then, nothing is repaired",
		}
	}
	if rec.KeptBy == "" || f.Run != nil { // it may be applying the release again
		return nil
	}
	source := rec.Newest().Source
	if _, err := name.NewDigest(source); err != nil && source != rec.Own {
		return &NotKept{
			Reason: ReasonNotRead, Message: fmt.Sprintf("%s holds its lock, and can't read it: it was applied from %s",
				holder, printable.Line(source)),
			Resolution: "request an image with the same files in spec.desiredUpdate of the ClusterVersion; until " +
				"then, nothing is repaired",
		}
	}
	return &NotKept{
		Reason: ReasonNotRead, Message: fmt.Sprintf("%s has held its lock for %s, and has not read it yet", holder,
			printable.Age(r.cluster.Now(), held.Since)),
		Resolution: "it is reading " + printable.Line(source) + "; until then, nothing is repaired",
	}
}

// ReadClusterVersion reads the ClusterVersion of the cluster.
func ReadClusterVersion(ctx context.Context, c *cluster.Cluster) (*configv1.ClusterVersion, error) {
	found, err := c.Get(ctx, kinds.NewID(kinds.ClusterVersion, "", kinds.ClusterVersionName))
	if err != nil {
		return nil, err
	}
	read := &configv1.ClusterVersion{}
	return read, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, read)
}

// refusalOf returns why the operator has not accepted the release that it should keep in place. If another release is
// requested, the operator may wait long for its acceptance.
func refusalOf(v *configv1.ClusterVersion, image string) string {
	accepted := v1helpers.FindStatusCondition(v.Status.Conditions, "ReleaseAccepted")
	if accepted == nil || accepted.Status != configv1.ConditionFalse ||
		!strings.Contains(accepted.Message, fmt.Sprintf("image=%q", image)) {
		return ""
	}
	if _, failure, ok := strings.Cut(accepted.Message, " failure="); ok {
		return failure // the rest is about which release
	}
	return accepted.Message
}

// FindOperator returns the Deployment of the operator of the release of a lock; nil if no operator is installed, or
// if it is being deleted.
func FindOperator(ctx context.Context, c *cluster.Cluster, l lock.Lock) (*unstructured.Unstructured, error) {
	if l.Release != payload.DefaultName {
		return nil, nil
	}
	found, err := c.List(ctx, kinds.Deployment, l.Namespace, operatorSelector)
	if err != nil || len(found) == 0 || found[0].GetDeletionTimestamp() != nil {
		return nil, err
	}
	return &found[0], nil
}

// judgeOperator returns why the operator of a release does not hold its lock; nil if no operator is installed.
func (r *reader) judgeOperator(ctx context.Context, l lock.Lock) *NotKept {
	deployment, err := FindOperator(ctx, r.cluster, l)
	switch {
	case err != nil:
		r.unknown("list deployments in namespace "+l.Namespace, err)
		return nil
	case deployment == nil:
		return nil
	}
	id := new(kinds.NewID(kinds.Deployment, deployment.GetNamespace(), deployment.GetName()))
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
		n.Pods = r.pods(ctx, deployment)
	default:
		n.Reason, n.Message = ReasonNotLeading,
			fmt.Sprintf("the operator, %s, is available and does not hold the lock of the release", id)
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
		a.addMessage(f.NotKept.Pods, "release %s was not applied yet, and no process is about to%s: %s", f.title(),
			since, f.NotKept)
	case newest.State == record.Completed:
		a.addMessage(f.NotKept.Pods, "release %s was %s, and is not kept in place%s: %s", f.title(), f.ended(*newest),
			since, f.NotKept)
	default:
		a.addMessage(f.NotKept.Pods, "release %s is not completed, and no process continues it%s: %s", f.title(),
			since, f.NotKept)
	}
}
