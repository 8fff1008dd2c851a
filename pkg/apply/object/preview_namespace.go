package object

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// StandIn is the namespace for dry runs of objects whose own namespace does not exist yet. API servers create it when
// they start, and clusters rarely give it quotas, limits, or labels that select it for admission.
const StandIn = "kube-public"

// tryElsewhere tries an object whose namespace does not exist yet, by a dry run in another namespace. It returns an
// error if the object would be refused in every namespace. Other refusals stay unmet: they may be due to the rights,
// the quotas, the security standard or the webhooks of that namespace.
func (p *Previewer) tryElsewhere(o *liveObject, lacking prerequisite) (prerequisite, error) {
	resource := o.resource
	isBuiltIn := kinds.ScopeOf(resource.GroupKind()) != kinds.Unknown
	// an aggregated API server might ignore the dry run
	if p.definitionOf(o.Manifest).isChanged() || !isBuiltIn && !p.served.isCustom(resource) {
		return lacking, nil
	}
	err := p.tryIn(StandIn, o, o.ID().Name)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = p.tryIn(StandIn, o, nameOfItsOwn(o.Manifest))
	}
	if err == nil {
		lacking.why, lacking.isTried = lacking.why+": it was tried in namespace "+StandIn, true
		return lacking, nil
	}
	switch needed := p.unmetBy(o.Manifest, err); {
	case needed.comes: // the release contains it: for example, a service account
		lacking.why += "; " + needed.why
	case IsAboutObject(err), cluster.IsNoAnswer(err):
		return lacking, err
	default:
		why := oneLine(maskSecrets(o.Manifest, err))
		lacking = prerequisite{why: lacking.why + ": it was tried in namespace " + StandIn +
			", which refuses it, as its own one may or may not: " + why}
	}
	return lacking, nil
}

// tryIn returns the refusal of the server to create an object in another namespace, by another name; nil if there is
// none.
func (p *Previewer) tryIn(namespace string, o *liveObject, name string) error {
	draft := p.desired(o.Manifest)
	if o.sent != nil { // the draft without unknown fields
		draft = o.sent.DeepCopy()
	}
	draft.SetNamespace(namespace)
	draft.SetName(name)
	var err error
	if o.Manifest.IsCreateOnly() {
		_, err = p.cluster.Create(p.requestCtx, o.resource, draft, cluster.DryRun)
	} else {
		_, err = p.cluster.Apply(p.requestCtx, o.resource, draft, cluster.Force|cluster.CreateOnly|cluster.DryRun)
	}
	return err
}

// nameOfItsOwn returns an unused name, which is not longer than a long name of the manifest, since kinds limit the
// lengths of names.
func nameOfItsOwn(m *payload.Manifest) string {
	sum := sha256.Sum256([]byte(m.ID().String()))
	suffix := "-" + hex.EncodeToString(sum[:])[:10]
	name := m.ID().Name
	return strings.TrimRight(name[:max(1, len(name)-len(suffix))], "-.") + suffix
}

// IsAboutObject reports whether a server refuses an object itself, in each namespace. Refusals of admission may be
// about the namespace, since webhooks and policies select namespaces.
func IsAboutObject(err error) bool {
	return causeOf(err).reason == ResourceInvalid
}
