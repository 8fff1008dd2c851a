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
				r.field(m, path, "%s, which its own server, %s, needs, and failurePolicy Fail refuses them while the "+
					"server does not answer, so it can't recover: exclude it with namespaceSelector or "+
					"objectSelector", selecting(w, held), pods.by.named())
				return
			}
		}
		if held := s.firstWrite(w, clusterWrites, "kube-system", nil); held != "" {
			r.field(m, path, "%s, which Kubernetes itself needs, and failurePolicy Fail refuses them while its server "+
				"does not answer, which may stop the cluster: select less, or exclude kube-system with "+
				"namespaceSelector", selecting(w, held))
		}
	})
}

// selecting describes how a webhook selects a request.
func selecting(w admission.Webhook, held string) string {
	text := "the webhook " + w.Name + " selects requests to " + held
	for _, rule := range w.Rules {
		if slices.Contains(rule.APIGroups, "*") && slices.ContainsFunc(rule.Resources, func(resource string) bool {
			return resource == "*" || resource == "*/*"
		}) {
			return "the rules select all resources of all groups (*), so " + text
		}
	}
	return text
}

// podsBehind returns the pods that a Service selects, on clusters of its caller.
func (s *subject) podsBehind(service kinds.ID, caller *manifest) []podSet {
	m := s.present(service, caller)
	if m == nil {
		return nil
	}
	return s.podsWith(m.podSelector(), m, s.index)
}

// heldWrite returns a request that pods need and a webhook selects; "" if it selects none.
func (s *subject) heldWrite(w admission.Webhook, pods podSet) string {
	namespace := pods.by.id.Namespace
	if held := s.firstWrite(w, podWrites, namespace, pods.labels); held != "" {
		return held
	}
	set, isKnown := s.labelsOf(namespace, w.Namespaces)
	needed := []*manifest{pods.by}
	for _, reference := range pods.by.references {
		needed = append(needed, s.byID[reference.To]...)
	}
	for _, m := range needed {
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
	network := s.networkOf(s.index)
	for _, kind := range kinds.Callers() {
		for _, m := range s.byKind[kind] {
			seen := map[kinds.ID]bool{}
			for _, called := range m.calledPorts() { // none of webhooks whose failure the API server ignores
				if !seen[called.service] && (kind != kinds.CustomResourceDefinition || len(m.versions()) > 1) {
					seen[called.service] = true
					network.checkServer(r, m, called)
				}
			}
		}
	}
}

// checkServer checks the server behind a Service that the API server calls by the configuration of an object.
func (n network) checkServer(r *reporter, m *manifest, called calledPort) {
	service, path := n.present(called.service, m), called.path[:slices.Index(called.path, "service")]
	pods := n.podsBehind(called.service, m)
	config, _ := fieldAt(m.Object().Object, path).(map[string]any)
	policy := n.isolatingPolicy(service, called.port, pods)
	switch {
	case len(pods) > 0 && n.areOff(pods):
		r.field(m, append(path, "service"), "the server behind it, %s, has replicas: 0, so all requests fail that "+
			"need its answer: run it, or remove this", pods[0].by.named())
	case n.isAstray(service, pods):
		r.field(m, append(path, "service"), "%s now leads to %s, which declares no port that the Service targets, so "+
			"all requests fail that need an answer: correct its selector", service.id, pods[0].by.named())
	case policy != nil:
		r.field(policy, []string{"spec", "ingress"}, "it does not let the API server, which is not a pod, call %s, so "+
			"requests fail for which %s needs an answer: allow the port without from", pods[0].by.named(), m.named())
	case config["caBundle"] == nil && n.wasTrusted(m, path) && !n.isInjected(m):
		r.field(m, path, "caBundle is not set, and no public authority signs certificates for %s.%s.svc, so the API "+
			"server trusts no answer, and refuses all requests that need one: set it, or have it injected, as by the "+
			"annotation cert-manager.io/inject-ca-from", called.service.Name, called.service.Namespace)
	}
}

// areOff reports whether none of some workloads has pods, and none had any before: switched-off reports the others.
func (s *subject) areOff(all []podSet) bool {
	return !slices.ContainsFunc(all, func(p podSet) bool {
		old := s.previousOf(p.by)
		return !p.restarts() || s.leastPods(p.by) > 0 || old != nil && old.number(1, "spec", "replicas") > 0
	})
}

// isAstray reports whether a Service has another selector than in the previous payload, and now leads to pods that
// declare none of the ports that it targets.
func (s *subject) isAstray(service *manifest, pods []podSet) bool {
	if service == nil || len(pods) == 0 {
		return false
	}
	old, typed := s.previousOf(service), convert[corev1.Service](service.Object().Object)
	return old != nil && old.podSelector() != nil && typed != nil && !slices.ContainsFunc(pods, func(p podSet) bool {
		return old.podSelector().Matches(p.labels) ||
			slices.ContainsFunc(typed.Spec.Ports, func(port corev1.ServicePort) bool {
				return p.declares(p.targetOf(port))
			})
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

// isolatingPolicy returns a NetworkPolicy that keeps the API server from all pods of a Service; nil if there is none.
func (n network) isolatingPolicy(service *manifest, called any, all []podSet) (isolating *manifest) {
	for _, pods := range all {
		server := request{to: &pods, isOutside: true}
		typed := convert[corev1.Service](service.Object().Object)
		for i := 0; typed != nil && i < len(typed.Spec.Ports); i++ {
			if port := typed.Spec.Ports[i]; called == port.Name || called == int64(port.Port) {
				server.port, server.protocol = pods.targetOf(port), port.Protocol
			}
		}
		closed := n.closed(networkingv1.PolicyTypeIngress, server)
		if len(closed) == 0 || server.port == 0 {
			return nil
		}
		isolating = closed[0].by
	}
	return isolating
}
