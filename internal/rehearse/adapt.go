package rehearse

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	apiserver "k8s.io/apiserver/pkg/admission"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/review/admission"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An adapter changes objects that could not work in a rehearsal, and reports each change.
type adapter struct {
	ready      ReadyRules
	findings   *findings
	runsPods   bool                // whether the containers of servers run
	injects    bool                // whether another release may inject caBundle
	notApplied []*payload.Manifest // the manifests of the new release that are not applied
}

// adapt returns a release whose objects need no server in a pod, and no controller of their own.
func (a *adapter) adapt(release *payload.Payload, origin lint.Origin) *payload.Payload {
	if release == nil {
		return nil
	}
	adapted := *release
	adapted.Manifests = nil
	for _, m := range release.Manifests {
		if !m.IsTombstone() {
			m = a.adaptManifest(m, release, origin)
		}
		if m != nil {
			adapted.Manifests = append(adapted.Manifests, m)
		}
	}
	return &adapted
}

// adaptManifest returns the adapted manifest; nil if the manifest is not to be applied.
func (a *adapter) adaptManifest(m *payload.Manifest, release *payload.Payload,
	origin lint.Origin) *payload.Manifest {
	kind := m.GroupVersionKind().GroupKind()
	var note string
	object := m.Object().DeepCopy()
	switch {
	case kinds.ClientConfigPath(kind) != nil && a.calls(object):
		return m
	case kinds.HasWebhooks(kind) && skipWebhooks(object):
		note = "its webhooks are not called: " + a.whyNotCalled() + refusedBy(m.Object(), release)
	case kind == kinds.CustomResourceDefinition && skipConversion(object):
		note = "its objects are not converted: the webhook for that does not run here"
	case kind == kinds.APIService && isServedByPods(object):
		a.findings.addSkipped(origin, m, "it is only tried by a dry run: the server behind it does not run here")
		if origin == lint.InPayload {
			a.notApplied = append(a.notApplied, m)
		}
		return nil
	case needsOwnController(object) && !a.ready.has(kind):
		_ = unstructured.SetNestedField(object.Object, ready.None, "metadata", "annotations", ready.Annotation)
		note = "it is not awaited, since its controller does not run here: --ready can define when it is ready"
	default:
		return m
	}
	a.findings.addSkipped(origin, m, note)
	return m.WithObject(object)
}

// calls reports whether the API server calls the servers of an object: their containers run, and caBundle is injected
// if an annotation requests that.
func (a *adapter) calls(object *unstructured.Unstructured) bool {
	return a.runsPods && (a.injects || !kinds.InjectsAuthority(object))
}

// whyNotCalled returns the reason why webhooks are not called.
func (a *adapter) whyNotCalled() string {
	if a.runsPods {
		return "nothing injects caBundle here (--with can)"
	}
	return "no container runs here"
}

// refusedBy returns the objects of a release that an API server refuses to write while no server answers the webhooks
// of a configuration, as the end of a sentence; "" if it needs no answer.
func refusedBy(configuration *unstructured.Unstructured, release *payload.Payload) string {
	namespaces := map[string]labels.Set{}
	for _, m := range release.Manifests {
		if m.ID().GroupKind() == kinds.Namespace {
			namespaces[m.ID().Name] = m.Object().GetLabels()
		}
	}
	var refused []*payload.Manifest
	webhooks := slices.DeleteFunc(admission.Webhooks(configuration), func(webhook admission.Webhook) bool {
		return !webhook.MustAnswer()
	})
	for _, m := range release.Manifests {
		request := admission.RequestFor(m.Object(), apiserver.Create, namespaces[m.ID().Namespace])
		update := request
		update.Operation = apiserver.Update
		if !m.IsTombstone() && slices.ContainsFunc(webhooks, func(webhook admission.Webhook) bool {
			return webhook.Matches(request) || webhook.Matches(update)
		}) {
			refused = append(refused, m)
		}
	}
	if len(refused) == 0 {
		return ""
	}
	text := fmt.Sprintf("; while its server does not answer, the API server refuses to write %s (%s:%d)",
		refused[0].ID(), refused[0].Path, refused[0].Line)
	if len(refused) > 1 {
		text += fmt.Sprintf(" and %s more", printable.Count(len(refused)-1, "object"))
	}
	return text
}

// needsOwnController reports whether only the controller of a custom resource can make it ready: its annotation or the
// rules of the Gateway API wait for a status.
func needsOwnController(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind().GroupKind()
	return kinds.ScopeOf(kind) == kinds.Unknown &&
		(object.GetAnnotations()[ready.Annotation] != "" || kind.Group == kinds.Gateway.Group)
}

// skipWebhooks adds a condition to webhooks that is never true. It returns false if there are no webhooks.
func skipWebhooks(object *unstructured.Unstructured) bool {
	webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for _, webhook := range webhooks {
		if fields, isMapping := webhook.(map[string]any); isMapping {
			conditions, _, _ := unstructured.NestedSlice(fields, "matchConditions")
			fields["matchConditions"] = append(conditions,
				map[string]any{"name": "rehearsal.runlevel.dev", "expression": "false"})
		}
	}
	if len(webhooks) == 0 {
		return false
	}
	return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks") == nil
}

// skipConversion removes the conversion webhook of a definition. It returns false if there is none.
func skipConversion(object *unstructured.Unstructured) bool {
	strategy, _, _ := unstructured.NestedString(object.Object, "spec", "conversion", "strategy")
	if strategy != "Webhook" {
		return false
	}
	unstructured.RemoveNestedField(object.Object, "spec", "conversion")
	return true
}

// isServedByPods reports whether an APIService names a Service.
func isServedByPods(object *unstructured.Unstructured) bool {
	service, _, _ := unstructured.NestedMap(object.Object, "spec", "service")
	return len(service) > 0
}
