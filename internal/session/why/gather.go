package why

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The pods of at most maxExplained blocking objects are diagnosed, and each diagnosis takes
// no longer than explainFor, since a user waits for the answer.
const (
	maxExplained = 5
	explainFor   = 5 * time.Second
)

// A reader makes requests, and notes those that fail.
type reader struct {
	cluster *cluster.Cluster
	trouble *diagnosis.Diagnoser
	failed  []string
}

func newReader(c *cluster.Cluster) reader {
	return reader{cluster: c, trouble: &diagnosis.Diagnoser{Cluster: c}}
}

// A gatherer collects the facts about an object.
type gatherer struct {
	reader
	ObjectQuery
	facts    *ObjectFacts
	manifest *payload.Manifest       // manifest of the object; nil if the named release does not have it
	head     objectmeta.LiveMetadata // metadata of the object, if it exists
}

// Gather reads everything that the answer needs. A failed request is a fact, too.
func Gather(ctx context.Context, c *cluster.Cluster, q ObjectQuery, object NamedObject) *ObjectFacts {
	facts := &ObjectFacts{Object: object.ID, Deletes: object.Deletes, Pending: map[kinds.ID][]string{}}
	g := &gatherer{reader: newReader(c), ObjectQuery: q, facts: facts}
	g.plan()
	g.findReferrers()
	g.findTombstone()
	g.object(ctx)
	g.release(ctx)
	g.drift(ctx)
	g.checkReady(ctx)
	g.surroundings(ctx)
	g.explainBlockers(ctx)
	g.facts.Now, g.facts.Unknown = c.Now(), g.failed
	return g.facts
}

// findTombstone looks for a pending delete of the object.
func (g *gatherer) findTombstone() {
	for _, item := range g.Records {
		index := slices.IndexFunc(item.Tombstones, func(t record.Tombstone) bool { return t.ID == g.facts.Object })
		if index >= 0 {
			g.facts.PendingDelete, g.facts.Record = &item.Tombstones[index], item
			return
		}
	}
}

// object reads the object itself.
func (g *gatherer) object(ctx context.Context) {
	var uid types.UID
	if g.facts.PendingDelete != nil {
		uid = g.facts.PendingDelete.UID
	}
	g.facts.Seen = tombstone.Observe(ctx, g.cluster, g.facts.Object, uid)
	if seen := g.facts.Seen.State; seen == tombstone.Absent || seen == tombstone.Unknown {
		return
	}
	live, err := g.cluster.Get(ctx, g.facts.Object)
	switch {
	case apierrors.IsNotFound(err): // it was deleted after it was observed
		g.facts.Seen = tombstone.Observation{State: tombstone.Absent}
		return
	case err != nil:
		g.unknown("get "+g.facts.Object.String(), err)
		return
	}
	resource, _ := g.cluster.FindKind(ctx, g.facts.Object.GroupKind()) // Get has found the kind
	g.facts.Live, g.head = live, objectmeta.Of(resource, live)
	if g.head.IsOf(g.head.Release) && g.head.Release != "" {
		g.facts.Owner, g.facts.Applied = g.head.Release, g.head.Entry.Since
	}
	g.facts.Holders = tombstone.FinalizerSetters(live)
}

// release finds the release that has the object, and who applies it.
func (g *gatherer) release(ctx context.Context) {
	rec := g.facts.Record
	if rec == nil {
		rec = g.pickRecord()
	}
	switch {
	case rec == nil:
		g.facts.Others = len(g.Records) // any release may have it
		return
	case g.known != nil:
		g.facts.ReleaseFacts = *g.known
	default:
		g.facts.ReleaseFacts = g.keeper(ctx,
			lock.Lock{Client: g.cluster.Client, Namespace: g.Namespace, Release: rec.Release}, rec)
	}
	if newest := rec.Newest(); g.facts.Plan != nil && newest != nil {
		g.facts.Plan.IsRecorded = newest.Hash == g.Release.Hash && newest.Version == g.Release.Version
	}
}

// pickRecord returns the record of the release that has the object, or should have it.
func (g *gatherer) pickRecord() *record.Record {
	first := func(fits func(*record.Record) bool) *record.Record {
		if index := slices.IndexFunc(g.Records, fits); index >= 0 {
			return g.Records[index]
		}
		return nil
	}
	if g.Release != nil && g.Release.Name != "" {
		return first(func(r *record.Record) bool { return r.Release == g.Release.Name })
	}
	isOwner := func(r *record.Record) bool { return r.Release == g.facts.Owner }
	hasFingerprint := func(r *record.Record) bool { return fingerprint.Read(r.Fingerprints).Has(g.facts.Object) }
	isInRun := func(r *record.Record) bool {
		_, _, found := apply.StateOf(r.Run).Find(g.facts.Object)
		return found
	}
	for _, fits := range []func(*record.Record) bool{isOwner, hasFingerprint, isInRun} {
		if found := first(fits); found != nil {
			return found
		}
	}
	if len(g.Records) == 1 && g.facts.Live == nil { // an existing object of no release belongs to none
		return g.Records[0]
	}
	return nil
}

// checkReady checks the readiness of the object; if it is not ready, it diagnoses the pods.
func (g *gatherer) checkReady(ctx context.Context) {
	if g.facts.Live == nil {
		return
	}
	around := ready.Related{Serving: g.serving(ctx)}
	if g.manifest != nil {
		around.Manifest = g.manifest.Object()
	}
	g.facts.Verdict = ready.Check(g.facts.Live, ready.Full, around)
	_, step, isLeft := g.facts.step()
	isOperator := g.facts.Object.GroupKind() == kinds.ClusterOperator
	if isOperator && around.Manifest == nil { // the manifest would have the required versions
		g.facts.Verdict = ready.Check(g.facts.Live, ready.Full, ready.Related{Manifest: anyVersion})
		if isLeft && step.Phase == apply.InWait && g.facts.Verdict.State == ready.Ready {
			g.facts.Verdict = ready.Verdict{State: ready.Waiting, Message: step.For, Reason: step.Reason}
		}
	}
	if g.facts.Verdict.State != ready.Ready {
		g.facts.Pods = g.diagnose(ctx, g.facts.Live)
		g.facts.Unmet = g.unmet(ctx, g.facts.Live)
	}
}

// anyVersion is the manifest of a ClusterOperator that may report any version.
var anyVersion = &unstructured.Unstructured{
	Object: map[string]any{"status": map[string]any{"versions": []any{map[string]any{}}}},
}

// diagnose returns the fields that other managers have added to an unready object, and why its pods are not ready.
func (g *gatherer) diagnose(ctx context.Context, object *unstructured.Unstructured) []string {
	lines := g.pods(ctx, object)
	if g.facts.Drift != nil && object == g.facts.Live { // the fields may belong to the release
		return lines
	}
	isHeld := g.facts.Held != nil && !g.facts.Held.IsDead(g.cluster.Now())
	return append(ownership.ExplainForeign(object, isHeld), lines...)
}

// pods returns why the pods of an object are not ready.
func (r *reader) pods(ctx context.Context, object *unstructured.Unstructured) []string {
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	lines, err := r.trouble.Explain(ctx, object)
	r.noteAll(err)
	return lines
}

// noteAll notes each joined error.
func (r *reader) noteAll(err error) {
	if err == nil {
		return
	}
	for text := range strings.Lines(err.Error()) {
		r.note(strings.TrimSpace(text))
	}
}

// explainCall returns why a webhook or an aggregated API did not answer the API server, if a step failed because of it.
func (r *reader) explainCall(ctx context.Context, step apply.RunStepState) []string {
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	lines, err := r.trouble.ExplainCall(ctx, step.ID.GroupKind(), step.For)
	r.noteAll(err)
	return lines
}

// serving reports whether the Services that the API server calls for the object have ready endpoints.
func (g *gatherer) serving(ctx context.Context) map[types.NamespacedName]bool {
	serving := map[types.NamespacedName]bool{}
	for _, service := range kinds.CalledServices(g.facts.Live) {
		endpoints, err := diagnosis.ReadyEndpoints(ctx, g.cluster.Client, service)
		if err != nil {
			g.unknown("list endpointslices in namespace "+service.Namespace, err)
		}
		serving[service] = endpoints > 0
	}
	return serving
}

// surroundings reads the kind and the namespace of an object that does not exist.
func (g *gatherer) surroundings(ctx context.Context) {
	if g.facts.Live != nil {
		return
	}
	if _, err := g.cluster.FindKind(ctx, g.facts.Object.GroupKind()); errors.Is(err, cluster.ErrNotServed) {
		g.facts.Unserved = &UnservedKind{}
		definition, err := g.cluster.Definition(ctx, g.facts.Object.GroupKind())
		if err != nil {
			g.unknown("list customresourcedefinitions", err)
		}
		if definition != nil {
			g.facts.Unserved.Definition = definition.GetName()
			g.facts.Unserved.Verdict = ready.Check(definition, ready.Full, ready.Related{})
		}
	}
	if g.facts.Object.Namespace == "" {
		return
	}
	home := tombstone.Observe(ctx, g.cluster, kinds.NewID(kinds.Namespace, "", g.facts.Object.Namespace), "")
	if home.State == tombstone.Unknown {
		g.note("whether namespace " + g.facts.Object.Namespace + " exists: " + home.Why)
	} else if home.State != tombstone.Present {
		g.facts.ObjectNamespace = &home
	}
}

// explainBlockers diagnoses why the object can't be applied, and why the pods of the objects that the run waits for
// are not ready.
func (g *gatherer) explainBlockers(ctx context.Context) {
	if _, step, isLeft := g.facts.step(); isLeft && step.Hook == "" &&
		(step.Phase == apply.InRetry || step.Phase == apply.HasFailed) {
		g.facts.Pending[step.ID] = g.explainCall(ctx, step)
	}
	left := maxExplained
	for _, node := range g.facts.roots() {
		for _, step := range g.facts.Run.Nodes[node].Steps {
			if !step.IsTried() || step.Deletes || left == 0 || step.ID == g.facts.Object || step.Hook != "" {
				continue
			}
			if step.Phase == apply.InRetry {
				g.facts.Pending[step.ID] = g.explainCall(ctx, step)
				continue
			}
			live, err := g.cluster.Get(ctx, step.ID)
			if errors.Is(err, cluster.ErrNotServed) {
				continue
			}
			left--
			if err != nil && !apierrors.IsNotFound(err) {
				g.unknown("get "+step.ID.String(), err)
			}
			if err == nil && diagnosis.CanExplain(live) {
				g.facts.Pending[step.ID] = g.diagnose(ctx, live)
				for _, need := range g.unmet(ctx, live) {
					g.facts.Pending[step.ID] = append(g.facts.Pending[step.ID],
						fmt.Sprintf("needs %s, %s", need.Object, need.Why))
				}
			}
		}
	}
}

// unknown notes that a request failed.
func (r *reader) unknown(what string, err error) {
	r.note(printable.Line(diagnosis.ReadError(what, err).Error()))
}

func (r *reader) note(what string) {
	if !slices.Contains(r.failed, what) {
		r.failed = append(r.failed, what)
	}
}
