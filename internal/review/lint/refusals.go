package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are about what an API server refuses of Kubernetes' own kinds. Its own code validates each object once;
// each refusal belongs to the first rule that matches.

// A refusalRule is a rule for the refusals that it matches: those of some kinds, or below some fields.
type refusalRule struct {
	id      string
	summary string
	kinds   []string // without their groups
	fields  []string // any key of the path
	texts   []string // parts of the message
}

var refusalRules = []refusalRule{
	{id: "invalid-selector", summary: "A selector is invalid, or does not select what it must.",
		fields: []string{"selector", "podSelector", "namespaceSelector", "labelSelector"},
		texts:  []string{"`selector` does not match"}},
	{
		id:      "invalid-name",
		summary: "A name, a label or an annotation is not one that Kubernetes allows.",
		fields:  []string{"metadata"},
	},
	{id: "invalid-probe", summary: "A probe has no action or several, or a setting that its kind does not allow.",
		fields: []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}},
	{id: "invalid-resources", summary: "A request is above its limit, or a quantity or a quota is invalid.",
		kinds: []string{"LimitRange", "ResourceQuota"}, fields: []string{"resources"}},
	{id: "invalid-traffic", summary: "A port, a Service, an Ingress or a NetworkPolicy is invalid.",
		kinds: []string{"Service", "Ingress", "IngressClass", "NetworkPolicy"}, fields: []string{"ports"}},
	{id: "invalid-storage", summary: "A volume, a mount, a claim or a class of storage is invalid.",
		kinds:  []string{"PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSIDriver"},
		fields: []string{"volumes", "volumeMounts", "volumeDevices", "volumeClaimTemplates"}},
	{id: "invalid-scaling", summary: "The bounds of an autoscaler or a budget, or a number of replicas, are invalid.",
		kinds: []string{"HorizontalPodAutoscaler", "PodDisruptionBudget"}, fields: []string{"replicas"}},
	{
		id:      "invalid-strategy",
		summary: "The strategy of a workload's rollouts is invalid.",
		fields:  []string{"strategy", "updateStrategy"},
	},
	{
		id:      "invalid-data",
		summary: "A Secret or a ConfigMap lacks what its type requires, or has an invalid key.",
		kinds:   []string{"Secret", "ConfigMap"},
	},
	{id: "invalid-rights", summary: "A role, a binding or a ServiceAccount is invalid.",
		kinds: []string{"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ServiceAccount"}},
	{
		id:      "invalid-pod",
		summary: "A container or another part of a pod is invalid.",
		kinds:   []string{"Pod"},
		fields:  []string{"template"},
	},
	{
		id:      "invalid-job",
		summary: "A Job, or the schedule or the time zone of a CronJob, is invalid.",
		kinds:   []string{"Job", "CronJob"},
	},
	{id: "invalid-object", summary: "An object is invalid in another way."},
}

// refusingRules returns the rules for what an API server refuses of Kubernetes' own kinds.
func refusingRules() []Rule {
	var rules []Rule
	for _, rule := range refusalRules {
		rules = append(rules, Rule{rule.id, Error, rule.summary, nothing, func(s *subject, r *reporter) {
			reportRefusals(s, rule.id, r)
		}})
	}
	return append(rules, Rule{"invalid-webhook", Error, "An admission webhook is invalid.", nothing,
		checkInvalidWebhook})
}

// matches reports whether a refusal belongs to the rule.
func (rule refusalRule) matches(kind schema.GroupKind, refusal fields.FieldRefusal) bool {
	isAny := len(rule.kinds)+len(rule.fields)+len(rule.texts) == 0
	return isAny || slices.Contains(rule.kinds, kind.Kind) ||
		slices.ContainsFunc(rule.fields, func(key string) bool { return slices.Contains(refusal.Path, key) }) ||
		slices.ContainsFunc(rule.texts, func(text string) bool { return strings.Contains(refusal.Message, text) })
}

// reportRefusals reports the refusals that belong to a rule.
func reportRefusals(s *subject, id string, r *reporter) {
	for _, m := range s.normal {
		for _, refusal := range s.refusals()[m.Manifest] {
			first := slices.IndexFunc(refusalRules, func(rule refusalRule) bool {
				return rule.matches(m.groupKind(), refusal)
			})
			if refusalRules[first].id == id {
				r.field(m, refusal.Path, "%s", fields.Refuses+refusal.Message)
			}
		}
	}
}

// checkInvalidWebhook checks admission webhooks for what an API server requires of them.
func checkInvalidWebhook(s *subject, r *reporter) {
	for _, m := range slices.Concat(s.byKind[kinds.ValidatingWebhookConfiguration],
		s.byKind[kinds.MutatingWebhookConfiguration]) {
		webhooks, _ := m.get("webhooks").([]any)
		for i, value := range webhooks {
			webhook, isMapping := value.(map[string]any)
			if m.isTombstone || !isMapping {
				continue
			}
			for _, problem := range webhookProblems(webhook) {
				r.field(m, []string{"webhooks", strconv.Itoa(i), problem.key}, fields.Refuses+"webhooks[%d].%s %s", i,
					problem.key, problem.text)
			}
		}
	}
}

// A webhookProblem is a field of a webhook that is invalid.
type webhookProblem struct{ key, text string }

// mostWebhookSeconds is the longest time-out of a webhook.
const mostWebhookSeconds = 30

// webhookProblems returns the fields of a webhook that an API server refuses.
func webhookProblems(webhook map[string]any) (found []webhookProblem) {
	name, _ := webhook["name"].(string)
	if strings.Count(name, ".") < 2 {
		found = append(found, webhookProblem{"name",
			"must be a domain of at least three parts, such as widgets.shop.example"})
	}
	if effects := webhook["sideEffects"]; effects != "None" && effects != "NoneOnDryRun" {
		found = append(found, webhookProblem{"sideEffects", "must be None or NoneOnDryRun"})
	}
	if versions, _ := webhook["admissionReviewVersions"].([]any); !slices.Contains(versions, any("v1")) &&
		!slices.Contains(versions, any("v1beta1")) {
		found = append(found, webhookProblem{"admissionReviewVersions", "must have v1"})
	}
	if seconds, isSet := webhook["timeoutSeconds"].(int64); isSet && (seconds < 1 || seconds > mostWebhookSeconds) {
		found = append(found, webhookProblem{"timeoutSeconds",
			fmt.Sprintf("must be between 1 and %d", mostWebhookSeconds)})
	}
	config, _ := webhook["clientConfig"].(map[string]any)
	if (config["url"] == nil) == (config["service"] == nil) {
		found = append(found, webhookProblem{"clientConfig", "must have either a url or a service"})
	}
	return found
}
