package object

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// refusedChange returns the change of an object that the server, or the definition of the payload, refuses.
func (p *Previewer) refusedChange(o *liveObject, err error) (Change, error) {
	if fixed := immutableFields(err); len(fixed) > 0 && o.exists {
		if err := mayRecreate(o.resource, o.Manifest, fixed); err != nil {
			return Change{}, err
		}
		look := p.uncheckedLook(o, p.desired(o.Manifest), "it would be deleted, and then created again")
		return Change{Action: Recreated, UID: o.head.UID, Message: cannotChange(fixed), Look: look}, nil
	}
	unmet := p.unmetBy(o.Manifest, err)
	if unmet.why == "" {
		return Change{}, err
	}
	if !o.exists && (IsNoNamespace(err) || isInTerminating(err)) {
		if unmet, err = p.tryElsewhere(o, unmet); err != nil {
			return Change{}, err
		}
	}
	would := p.desired(o.Manifest)
	if o.exists {
		would.Object = over(o.live.Object, would.Object)
	}
	if err := p.validate(p.definitionOf(o.Manifest), o, would); err != nil {
		return Change{}, err
	}
	look := p.uncheckedLook(o, would, unmet.why)
	change := Change{Action: NotChecked, UID: o.head.UID, Message: unmet.why, Look: look}
	switch {
	case unmet.comes && o.exists:
		change.Action = Configured
	case unmet.comes:
		change.Action = Created
	}
	if o.exists || unmet.isTried { // the manifest of an existing object need not have all fields
		return change, nil
	}
	return p.unlessRefused(o.Manifest, change)
}

// unlessRefused returns a change that would create an object, and that the server can't be asked about, unless API
// servers are known to refuse the object.
func (p *Previewer) unlessRefused(m *payload.Manifest, change Change) (Change, error) {
	if known := p.options.Refusals[StepOf(m)]; len(known) > 0 {
		return Change{}, refusal{ResourceInvalid, strings.Join(fields.RefusalMessages(known), "; ") + withoutServer}
	}
	return change, nil
}

// withoutServer ends the reason of a refusal that did not come from the server.
const withoutServer = " (by Kubernetes' own validation, as the cluster can't be asked yet)"

// uncheckedLook returns the states of an object that the server could not validate. An autoscaler keeps its replicas.
func (p *Previewer) uncheckedLook(o *liveObject, would *unstructured.Unstructured, reason string) *Look {
	if o.exists && p.scaling.has(o.ID()) {
		if count, found := ownership.Replicas(o.live); found {
			ownership.SetReplicas(would, count)
		}
	}
	return &Look{Live: o.live, Would: would, Unchecked: reason}
}

// A prerequisite is an object or a property of the cluster without which the server can't validate an object.
type prerequisite struct {
	why   string // the object can't be validated; "" if it was
	comes bool   // the release contains the prerequisite: the object is then expected to match the release

	isTried bool // the server takes the object in another namespace
}

// noDryRun is the message of servers for a webhook that can't be called for dry runs.
const (
	noDryRun             = "does not support dry run"
	webhookWithoutDryRun = "a webhook that would be called does not support dry runs"
)

// unmetBy returns the prerequisite that a refused object lacks, if it is the only cause of the refusal.
func (p *Previewer) unmetBy(m *payload.Manifest, err error) prerequisite {
	definition := p.definitionOf(m)
	if needed := p.lacks(m, err); needed != nil {
		return prerequisite{why: "it needs " + needed.ID().String() + ", which is new, too", comes: true}
	}
	switch {
	case hasMessage(noDryRun)(err):
		return prerequisite{why: webhookWithoutDryRun}
	case isServersInvalid(err) && definition.isChanged():
		return prerequisite{
			why:   "the cluster has another version of its definition: it was checked against the one of this release",
			comes: true,
		}
	case IsNoNamespace(err):
		return prerequisite{why: "namespace " + m.Object().GetNamespace() +
			" does not exist, and the release does not have it: an apply would wait for it"}
	case isTransient(err):
		return prerequisite{why: "the server refuses it for now, and an apply would try again: " + p.explain(m, err)}
	}
	return prerequisite{}
}

// explainFor limits the time to find the reason why a webhook or another server has not answered the API server.
const explainFor = 5 * time.Second

// explain returns an error in a line, with the reason why a webhook or another server has not answered the API server.
func (p *Previewer) explain(m *payload.Manifest, err error) string {
	ctx, cancel := context.WithTimeout(p.requestCtx, explainFor)
	defer cancel()
	why, _ := p.asker.ExplainCall(ctx, m.GroupVersionKind().GroupKind(), oneLine(err))
	return strings.Join(append([]string{oneLine(maskSecrets(m, err))}, why...), "; ")
}

// isTransient reports whether a refusal is about the state of the cluster, and not about the object. If the server does
// not answer, the error is not a refusal.
func isTransient(err error) bool {
	cause := causeOf(err)
	switch {
	case cause.retry != later:
		return false
	case cause.reason == ClusterError:
		return hasMessage("failed calling webhook")(err)
	default:
		return cause.reason == ResourceForbidden || cause.reason == ResourceConflict ||
			cause.reason == ResourceTypeMissing
	}
}

// isServersInvalid reports whether the server finds the object itself invalid.
func isServersInvalid(err error) bool {
	return !errors.As(err, new(refusal)) &&
		(apierrors.IsInvalid(err) || len(unknownFields(err)) > 0 || isBadRequest(err))
}

// missing matches the messages of admission about a missing object, by its kind.
var missing = map[schema.GroupKind]*regexp.Regexp{
	kinds.ServiceAccount: regexp.MustCompile(`error looking up service account [^/ ]+/([^: ]+):`),
	kinds.PriorityClass:  regexp.MustCompile(`no PriorityClass with name (\S+) was found`),
	kinds.RuntimeClass:   regexp.MustCompile(`RuntimeClass "([^"]+)" not found`),
}

// lacks returns the manifest of the object that the cluster lacks; nil if the payload does not have it.
func (p *Previewer) lacks(m *payload.Manifest, err error) *payload.Manifest {
	for kind, text := range missing {
		if found := text.FindStringSubmatch(err.Error()); found != nil && apierrors.IsForbidden(err) {
			return p.brings(m, found[1], func(other schema.GroupKind) bool { return other == kind })
		}
	}
	details := status(err).Details
	if !apierrors.IsNotFound(err) || details == nil {
		return nil
	}
	if ref, _, _ := unstructured.NestedStringMap(m.Object().Object, "roleRef"); ref["name"] == details.Name &&
		ref["name"] != "" {
		// servers report it as a binding that was not found
		role := schema.GroupKind{Group: ref["apiGroup"], Kind: ref["kind"]}
		return p.brings(m, details.Name, func(kind schema.GroupKind) bool { return kind == role })
	}
	return p.brings(m, details.Name, func(kind schema.GroupKind) bool {
		resource, err := p.cluster.FindKind(p.requestCtx, kind)
		return err == nil && resource.Group == details.Group && resource.Resource == details.Kind
	})
}

// brings returns the manifest of an object that the release contains, by the object's name.
func (p *Previewer) brings(needs *payload.Manifest, name string, isKind func(schema.GroupKind) bool) *payload.Manifest {
	for _, m := range p.payload.Manifests {
		isNear := m.Object().GetNamespace() == "" || m.Object().GetNamespace() == needs.Object().GetNamespace()
		if isNear && m != needs && !m.IsTombstone() && m.ID().Name == name && isKind(m.GroupVersionKind().GroupKind()) {
			return m
		}
	}
	return nil
}

// withoutKind returns the change of an object whose kind, or its version, is not served.
func (p *Previewer) withoutKind(m *payload.Manifest, err error) (Change, error) {
	why := p.kindComes(m)
	if why == "" {
		return Change{}, err
	}
	definition := p.definitionOf(m)
	o := &liveObject{Manifest: m}
	if err := p.validate(definition, o, nil); err != nil {
		return Change{}, err
	}
	if definition != nil && m.Object().GetNamespace() == "" {
		if prepared, err := definition.prepare(); err == nil && prepared.Scope() == "Namespaced" {
			return Change{}, inNoNamespace
		}
	}
	change := Change{Action: Created, Message: why, Look: p.uncheckedLook(o, p.desired(m), why)}
	resource, err := p.cluster.FindKind(p.requestCtx, m.GroupVersionKind().GroupKind())
	if err != nil { // no version of the kind is served, so the object does not exist
		return change, nil
	}
	head, exists, err := p.metadata.find(resource, m.ID())
	if err == nil {
		err = refuseOwned(head, p.options.Release)
	}
	if exists {
		change.Action, change.UID = NotChecked, head.UID
	}
	return change, err
}

// kindComes returns a text about the object of the release that adds a kind; "" if there is none.
func (p *Previewer) kindComes(m *payload.Manifest) string {
	if definition := p.definitionOf(m); definition != nil {
		return definition.manifest.ID().String() + " is new, too: it was checked against that"
	}
	for _, other := range p.payload.Manifests {
		if other.GroupVersionKind().GroupKind() != kinds.APIService || other.IsTombstone() {
			continue
		}
		version, _, _ := unstructured.NestedString(other.Object().Object, "spec", "version")
		if servedGroup(other.Object()) == m.GroupVersionKind().Group && version == m.GroupVersionKind().Version {
			return "its API is new, too: " + other.ID().String()
		}
	}
	return ""
}

// over merges the fields of one object over those of another. Lists are replaced.
func over(below, above map[string]any) map[string]any {
	both := maps.Clone(below)
	for key, value := range above {
		inner, isMapping := value.(map[string]any)
		under, isOver := both[key].(map[string]any)
		if isMapping && isOver {
			value = over(under, inner)
		}
		both[key] = value
	}
	return both
}
