// Package admission decides which requests an API server sends to admission webhooks and policies, by the server's own
// code.
//
// The package reads no cluster: callers find the labels of Namespaces. It does not evaluate the conditions of a
// webhook, which may exclude any request.
//
// Start with Webhooks.
package admission

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Request is a request to write an object.
type Request struct {
	Resource    schema.GroupVersionResource
	Subresource string
	Operation   admission.Operation
	ID          kinds.ID
	Labels      labels.Set // labels of the object
	Namespace   labels.Set // labels of its Namespace, if it is in one
}

// RequestFor returns the request to create or update an object in a Namespace with labels.
func RequestFor(object *unstructured.Unstructured, operation admission.Operation, namespace labels.Set) Request {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	return Request{
		Resource: resource, Operation: operation, ID: kinds.IDOf(object), Labels: object.GetLabels(),
		Namespace: NamespaceLabels(object.GetNamespace(), namespace),
	}
}

// NamespaceLabels returns the labels of a Namespace with those that the API server adds.
func NamespaceLabels(name string, set labels.Set) labels.Set {
	return labels.Merge(set, labels.Set{corev1.LabelMetadataName: name})
}

// A Matcher selects requests.
type Matcher struct {
	Namespaces, Objects labels.Selector
	rules, excluded     []admissionv1.NamedRuleWithOperations
}

// NewMatcher returns the matcher of the selectors and rules of a webhook or a policy.
func NewMatcher(match *admissionv1.MatchResources) (m Matcher, err error) {
	m.rules, m.excluded = slices.Clone(match.ResourceRules), match.ExcludeResourceRules
	if match.MatchPolicy == nil || *match.MatchPolicy == admissionv1.Equivalent {
		for i := range m.rules { // the API server converts objects of other versions
			m.rules[i].APIVersions = []string{"*"}
		}
	}
	all := &metav1.LabelSelector{}
	if m.Namespaces, err = metav1.LabelSelectorAsSelector(cmp.Or(match.NamespaceSelector, all)); err == nil {
		m.Objects, err = metav1.LabelSelectorAsSelector(cmp.Or(match.ObjectSelector, all))
	}
	return m, err
}

// Matches reports whether a request is selected.
func (m Matcher) Matches(r Request) bool {
	if r.ID.Group == admissionv1.GroupName { // neither webhooks nor policies are called for these
		return false
	}
	namespaced := r.ID.Namespace != ""
	if r.ID.GroupKind() == kinds.Namespace {
		r.ID.Namespace, r.Namespace, namespaced = r.ID.Name, NamespaceLabels(r.ID.Name, r.Labels), true
	}
	return (!namespaced || m.Namespaces.Matches(r.Namespace)) && m.Objects.Matches(r.Labels) &&
		r.matchesAny(m.rules) && !r.matchesAny(m.excluded)
}

// matchesAny reports whether a request matches one of the rules.
func (r Request) matchesAny(all []admissionv1.NamedRuleWithOperations) bool {
	attributes := admission.NewAttributesRecord(nil, nil, r.ID.GroupKind().WithVersion(r.Resource.Version),
		r.ID.Namespace, r.ID.Name, r.Resource, r.Subresource, r.Operation, nil, false, nil)
	return slices.ContainsFunc(all, func(rule admissionv1.NamedRuleWithOperations) bool {
		matcher := rules.Matcher{Rule: rule.RuleWithOperations, Attr: attributes}
		return (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.ID.Name)) && matcher.Matches()
	})
}

// A Webhook is an admission webhook, with the fields that validating and mutating ones have in common.
type Webhook struct {
	admissionv1.ValidatingWebhook
	Matcher
	Path []string // path to its fields in the configuration
}

// Webhooks returns the valid webhooks of a configuration.
func Webhooks(configuration *unstructured.Unstructured) (found []Webhook) {
	items, _, _ := unstructured.NestedFieldNoCopy(configuration.Object, "webhooks")
	list, _ := items.([]any)
	for i, item := range list {
		webhook := Webhook{Path: []string{"webhooks", strconv.Itoa(i)}}
		fields, _ := item.(map[string]any)
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &webhook.ValidatingWebhook)
		if err != nil {
			continue
		}
		match := &admissionv1.MatchResources{
			NamespaceSelector: webhook.NamespaceSelector, ObjectSelector: webhook.ObjectSelector,
			MatchPolicy: webhook.MatchPolicy,
		}
		for _, rule := range webhook.Rules {
			match.ResourceRules = append(match.ResourceRules,
				admissionv1.NamedRuleWithOperations{RuleWithOperations: rule})
		}
		if webhook.Matcher, err = NewMatcher(match); err == nil {
			found = append(found, webhook)
		}
	}
	return found
}

// MustAnswer reports whether the API server refuses requests that a webhook does not answer. It is false for a webhook
// with conditions, which may exclude any request.
func (w Webhook) MustAnswer() bool {
	return (w.FailurePolicy == nil || *w.FailurePolicy == admissionv1.Fail) && len(w.MatchConditions) == 0
}

// Service returns the Service of the server; the zero ID if it has an address instead.
func (w Webhook) Service() kinds.ID {
	if w.ClientConfig.Service == nil {
		return kinds.ID{}
	}
	return kinds.NewID(kinds.Service, w.ClientConfig.Service.Namespace, w.ClientConfig.Service.Name)
}

// Host returns the host of the server's address; "" if it has a Service instead.
func (w Webhook) Host() string {
	if w.ClientConfig.URL == nil {
		return ""
	}
	address, err := url.Parse(*w.ClientConfig.URL)
	if err != nil {
		return ""
	}
	return address.Hostname()
}
