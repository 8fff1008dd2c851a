package lint

import (
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/admission"
)

// webhookRules are about webhooks of the release that select too much, and webhooks without a server that answers.
func webhookRules() []Rule {
	return []Rule{
		{"webhook-deadlock", Warning, nothing, checkWebhookDeadlock},
		{"webhook-never-called", Warning, nothing, checkWebhookNeverCalled},
		{"webhook-unanswered", Warning, nothing, checkWebhookUnanswered},
		{"policy-refuses", Warning, nothing, checkPolicyRefuses},
	}
}

// eachWebhook calls check for each admission webhook of the payload.
func (s *subject) eachWebhook(check func(*manifest, admission.Webhook)) {
	for _, kind := range []schema.GroupKind{kinds.ValidatingWebhookConfiguration, kinds.MutatingWebhookConfiguration} {
		for _, m := range s.byKind[kind] {
			for _, webhook := range admission.Webhooks(m.Object()) {
				if !m.isTombstone {
					check(m, webhook)
				}
			}
		}
	}
}

// A neededWrite is a request of Kubernetes itself.
type neededWrite struct {
	operation       apiserver.Operation
	group, resource string // the resource may have a subresource
}

// podWrites are the requests without which pods do not start, end, or become endpoints.
var podWrites = []neededWrite{
	{apiserver.Create, "", "pods"},
	{apiserver.Create, "", "pods/binding"},
	{apiserver.Update, "", "pods/status"},
	{apiserver.Create, "", "serviceaccounts/token"},
	{apiserver.Create, "apps", "replicasets"},
	{apiserver.Update, "discovery.k8s.io", "endpointslices"},
	{apiserver.Update, "", "endpoints"},
	{apiserver.Delete, "", "pods"},
}

// clusterWrites are the other requests that controllers in kube-system need, and without which nodes fail.
var clusterWrites = slices.Concat([]neededWrite{
	{apiserver.Update, "coordination.k8s.io", "leases"},
	{apiserver.Update, "", "nodes/status"},
	{apiserver.Create, "", "nodes"},
	{apiserver.Update, "", "configmaps"},
	{apiserver.Update, "", "secrets"},
}, podWrites)

func checkWebhookDeadlock(s *subject, r *reporter) {
	s.eachWebhook(func(m *manifest, w admission.Webhook) {
		if !w.MustAnswer() {
			return
		}
		path := append(slices.Clone(w.Path), "rules")
		for _, pods := range s.podsBehind(w.Service(), m) {
			if held := s.heldWrite(w, pods); held != "" {
				r.field(m, path, "the webhook %s selects requests to %s, which its own server, %s (%s:%d), needs, and "+
					"failurePolicy Fail refuses them while the server does not answer, so it can't recover: exclude "+
					"it with namespaceSelector or objectSelector", w.Name, held, pods.by.id, pods.by.Path, pods.by.Line)
				break
			}
		}
		if held := s.firstWrite(w, clusterWrites, "kube-system", nil); held != "" {
			r.field(m, path, "the webhook %s selects requests to %s, which Kubernetes itself needs, and failurePolicy "+
				"Fail refuses them while its server does not answer, which may stop the cluster: select less, or "+
				"exclude kube-system with namespaceSelector", w.Name, held)
		}
	})
}

// podsBehind returns the pods that a Service selects, on clusters of its caller.
func (s *subject) podsBehind(service kinds.ID, caller *manifest) (found []podSet) {
	for _, m := range s.byID[service] {
		if !m.isTombstone && s.shareCluster(m, caller) {
			pods, _, _ := s.selected(m)
			found = append(found, pods...)
		}
	}
	return found
}

// heldWrite returns a request that pods need and a webhook selects; "" if it selects none.
func (s *subject) heldWrite(w admission.Webhook, pods podSet) string {
	namespace := pods.by.id.Namespace
	if held := s.firstWrite(w, podWrites, namespace, pods.labels); held != "" {
		return held
	}
	needed := []*manifest{pods.by}
	for _, reference := range pods.by.references {
		needed = append(needed, s.byID[reference.To]...)
	}
	for _, m := range needed {
		set, isKnown := s.labelsOf(namespace, w.Namespaces)
		if isKnown && !m.isTombstone && w.Matches(admission.RequestFor(m.Object(), apiserver.Update, set)) {
			return "update " + m.id.String()
		}
	}
	return ""
}

// firstWrite returns the first request in a namespace that a webhook selects; "" if it selects none.
func (s *subject) firstWrite(w admission.Webhook, writes []neededWrite, namespace string, pods labels.Set) string {
	set, isKnown := s.labelsOf(namespace, w.Namespaces)
	for _, write := range writes {
		resource, subresource, _ := strings.Cut(write.resource, "/")
		request := admission.Request{
			Resource:    schema.GroupVersionResource{Group: write.group, Version: "v1", Resource: resource},
			Subresource: subresource, Operation: write.operation,
			ID:        kinds.NewID(schema.GroupKind{Group: write.group, Kind: resource}, namespace, ""),
			Namespace: set, Labels: pods,
		}
		if resource == "nodes" {
			request.ID.Namespace = ""
		} else if !isKnown {
			continue
		}
		if w.Matches(request) {
			return strings.ToLower(string(write.operation)) + " " + write.resource
		}
	}
	return ""
}

// labelsOf returns the labels of a Namespace, and whether those that a selector requires are known: others may add
// labels to Namespaces that are not the payload's.
func (s *subject) labelsOf(namespace string, selector labels.Selector) (set labels.Set, isKnown bool) {
	for _, m := range s.namespaces(namespace) {
		if !m.isTombstone {
			return admission.NamespaceLabels(namespace, m.Object().GetLabels()), true
		}
	}
	requirements, _ := selector.Requirements()
	needsMore := slices.ContainsFunc(requirements, func(requirement labels.Requirement) bool {
		return requirement.Key() != corev1.LabelMetadataName
	})
	return admission.NamespaceLabels(namespace, nil), !needsMore
}

// checkWebhookUnanswered looks for servers that the API server calls, and that can't answer it.
func checkWebhookUnanswered(s *subject, r *reporter) {
	s.eachWebhook(func(m *manifest, w admission.Webhook) {
		if host := w.Host(); w.MustAnswer() && (host == "localhost" || net.ParseIP(host).IsLoopback() ||
			strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local")) {
			r.field(m, append(slices.Clone(w.Path), "clientConfig", "url"), "API servers reach no pod at %s, as they "+
				"do not use the DNS of the cluster, and failurePolicy Fail refuses all requests that the webhook %s "+
				"selects: name a Service in clientConfig.service", host, w.Name)
		}
	})
	for _, kind := range kinds.Callers() {
		for _, m := range s.byKind[kind] {
			seen := map[kinds.ID]bool{}
			for _, called := range m.calledPorts() { // none of webhooks whose failure the API server ignores
				if !seen[called.service] && (kind != kinds.CustomResourceDefinition || len(m.versions()) > 1) {
					seen[called.service] = true
					s.checkServer(r, m, called.service, called.path[:slices.Index(called.path, "service")])
				}
			}
		}
	}
}

// checkServer checks the server behind a Service that the API server calls by the configuration at a path.
func (s *subject) checkServer(r *reporter, m *manifest, service kinds.ID, path []string) {
	pods := s.podsBehind(service, m)
	total, isFixed := s.replicasOf(pods)
	config, _ := fieldAt(m.Object().Object, path).(map[string]any)
	policy := s.isolatingPolicy(pods)
	switch {
	case len(pods) > 0 && isFixed && total == 0:
		r.field(m, append(path, "service"), "the server behind it, %s (%s:%d), has replicas: 0, so all requests fail "+
			"that need its answer: run it, or remove this", pods[0].by.id, pods[0].by.Path, pods[0].by.Line)
	case len(pods) > 0 && s.lostPort(s.present(service, m), pods):
		r.field(m, append(path, "service"), "%s leads to %s (%s:%d), which declares no port that the Service targets, "+
			"as it did in the previous payload, so all requests fail that need an answer: correct targetPort, or "+
			"the selector", service,
			pods[0].by.id, pods[0].by.Path, pods[0].by.Line)
	case s.servedPath(m, path, pods) != "":
		r.field(m, append(path, "service", "path"), "the arguments of the server, %s (%s:%d), still name the path %s "+
			"of the previous payload, so all requests fail that need an answer: change both together", pods[0].by.id,
			pods[0].by.Path, pods[0].by.Line, s.servedPath(m, path, pods))
	case policy != nil:
		r.field(policy, []string{"spec", "ingress"}, "it lets only pods call %s (%s:%d), and the API server is not a "+
			"pod, so requests fail for which %s (%s:%d) needs an answer: allow the port without from", pods[0].by.id,
			pods[0].by.Path, pods[0].by.Line, m.id, m.Path, m.Line)
	case config["caBundle"] == nil && s.wasTrusted(m, path) && !s.isInjected(m):
		r.field(m, path, "caBundle is not set, and no public authority signs certificates for %s.%s.svc, so the API "+
			"server trusts no answer, and refuses all requests that need one: set it, or have it injected, as by the "+
			"annotation cert-manager.io/inject-ca-from", service.Name, service.Namespace)
	}
}

// servedPath returns the path that a configuration no longer names, and the arguments of pods do; "" if they name the
// new path, too, or neither.
func (s *subject) servedPath(m *manifest, path []string, pods []podSet) string {
	old, field := s.previousOf(m), append(slices.Clone(path), "service", "path")
	if old == nil {
		return ""
	}
	had, _ := fieldAt(old.Object().Object, field).(string)
	has, _ := fieldAt(m.Object().Object, field).(string)
	names := func(path string) bool {
		return slices.ContainsFunc(pods, func(p podSet) bool {
			return slices.ContainsFunc(p.texts(), func(text text) bool {
				return text.value == path || strings.HasSuffix(text.value, "="+path)
			})
		})
	}
	if len(had) > 1 && had != has && names(had) && !names(has) {
		return had
	}
	return ""
}

// lostPort reports whether none of the pods behind a Service declares a port that it targets, and some did so with the
// Service of the previous payload. Pods need not declare ports.
func (s *subject) lostPort(service *manifest, pods []podSet) bool {
	old := s.previousOf(service)
	if old == nil || old.podSelector() == nil || declareTarget(service, pods) {
		return false
	}
	before := slices.DeleteFunc(slices.Clone(s.pods()[old.id.Namespace]), func(p podSet) bool {
		return !old.podSelector().Matches(p.labels)
	})
	return declareTarget(old, before)
}

// declareTarget reports whether some pods declare a port that a Service targets.
func declareTarget(service *manifest, pods []podSet) bool {
	typed := convert[corev1.Service](service.Object().Object)
	return typed != nil && slices.ContainsFunc(typed.Spec.Ports, func(port corev1.ServicePort) bool {
		return slices.ContainsFunc(pods, func(p podSet) bool { return p.declares(p.targetOf(port)) })
	})
}

// wasTrusted reports whether the API server trusted a server before, or could do without it.
func (s *subject) wasTrusted(m *manifest, path []string) bool {
	old := s.previousOf(m)
	return old != nil && (fieldAt(old.Object().Object, append(slices.Clone(path), "caBundle")) != nil ||
		isOptional(fieldAt(old.Object().Object, path[:len(path)-1])))
}

// isInjected reports whether others than the payload may set caBundle of an object: an annotation requests it, or a
// program of the payload has a right to change the object.
func (s *subject) isInjected(m *manifest) bool {
	return kinds.InjectsAuthority(m.Object()) ||
		slices.ContainsFunc(s.creators().roles, func(role *manifest) bool {
			return role.text("roleRef", "name") == "cluster-admin" ||
				role.allows(m.groupKind(), true, "update", "patch")
		})
}

// isolatingPolicy returns a NetworkPolicy that keeps all but pods from all of some pods; nil if there is none.
func (s *subject) isolatingPolicy(all []podSet) (isolating *manifest) {
	for _, pods := range all {
		isolating = nil
		for _, m := range s.byKind[kinds.NetworkPolicy] {
			spec := convert[networkingv1.NetworkPolicySpec](m.get("spec"))
			selector := selectorOf(m.get("spec", "podSelector"))
			if m.isTombstone || spec == nil || m.id.Namespace != pods.by.id.Namespace || selector == nil ||
				!selector.Matches(pods.labels) || len(spec.PolicyTypes) > 0 &&
				!slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
				continue
			}
			if isolating = m; slices.ContainsFunc(spec.Ingress, admitsOthersThanPods) {
				return nil
			}
		}
		if isolating == nil {
			return nil
		}
	}
	return isolating
}

// admitsOthersThanPods reports whether a rule may allow requests of an API server.
func admitsOthersThanPods(rule networkingv1.NetworkPolicyIngressRule) bool {
	return len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.IPBlock != nil || peer.NamespaceSelector != nil
	})
}
