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

// These rules report the objects of Kubernetes' own kinds that an API server refuses. The code of the API server
// validates each object once, and each refusal belongs to the first rule that matches.

// A refusalRule matches the refusals of some kinds, or below some fields.
type refusalRule struct {
	id     string
	kinds  []schema.GroupKind
	fields []string // any key of the path
	text   string   // a part of the message
}

var refusalRules = []refusalRule{
	{
		id: "invalid-selector", fields: []string{"selector", "podSelector", "namespaceSelector", "labelSelector"},
		text: "`selector` does not match",
	},
	{id: "invalid-name", fields: []string{"metadata"}},
	{id: "invalid-probe", fields: []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}},
	{
		id: "invalid-resources", fields: []string{"resources"},
		kinds: []schema.GroupKind{kinds.LimitRange, kinds.ResourceQuota},
	},
	{
		id: "invalid-traffic", fields: []string{"ports"},
		kinds: []schema.GroupKind{kinds.Service, kinds.Ingress, kinds.IngressClass, kinds.NetworkPolicy},
	},
	{
		id: "invalid-storage", fields: []string{"volumes", "volumeMounts", "volumeDevices", "volumeClaimTemplates"},
		kinds: []schema.GroupKind{kinds.PersistentVolume, kinds.PersistentVolumeClaim, kinds.StorageClass,
			kinds.CSIDriver},
	},
	{
		id: "invalid-scaling", fields: []string{"replicas"},
		kinds: []schema.GroupKind{kinds.HorizontalPodAutoscaler, kinds.PodDisruptionBudget},
	},
	{id: "invalid-strategy", fields: []string{"strategy", "updateStrategy"}},
	{id: "invalid-data", kinds: []schema.GroupKind{kinds.Secret, kinds.ConfigMap}},
	{
		id: "invalid-rights", kinds: []schema.GroupKind{
			kinds.Role, kinds.ClusterRole, kinds.RoleBinding, kinds.ClusterRoleBinding, kinds.ServiceAccount,
		},
	},
	{id: "invalid-pod", fields: []string{"template"}, kinds: []schema.GroupKind{kinds.Pod}},
	{id: "invalid-job", kinds: []schema.GroupKind{kinds.Job, kinds.CronJob}},
	{id: "invalid-object"}, // all others
}

// refusingRules returns the rules for objects of Kubernetes' own kinds that an API server refuses.
func refusingRules() []Rule {
	var rules []Rule
	for _, rule := range refusalRules {
		check := func(s *subject, r *reporter) { s.reportRefusals(rule.id, r) }
		rules = append(rules, Rule{rule.id, Error, nothing, check})
	}
	return append(rules, Rule{"invalid-webhook", Error, nothing, checkInvalidWebhook})
}

// matches reports whether a refusal belongs to the rule.
func (r refusalRule) matches(kind schema.GroupKind, refusal fields.Refusal) bool {
	isAny := len(r.kinds)+len(r.fields) == 0
	return isAny || slices.Contains(r.kinds, kind) ||
		r.text != "" && strings.Contains(refusal.Message, r.text) ||
		slices.ContainsFunc(r.fields, func(key string) bool { return slices.Contains(refusal.Path, key) })
}

// reportRefusals reports the refusals that belong to a rule.
func (s *subject) reportRefusals(id string, r *reporter) {
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

// checkInvalidWebhook checks that admission webhooks have the fields that an API server requires.
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

// A webhookProblem is an invalid field of a webhook.
type webhookProblem struct{ key, text string }

// maxWebhookSeconds limits the timeout of a webhook.
const maxWebhookSeconds = 30

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
	if seconds, isSet := webhook["timeoutSeconds"].(int64); isSet && (seconds < 1 || seconds > maxWebhookSeconds) {
		found = append(found, webhookProblem{"timeoutSeconds",
			fmt.Sprintf("must be between 1 and %d", maxWebhookSeconds)})
	}
	config, _ := webhook["clientConfig"].(map[string]any)
	if (config["url"] == nil) == (config["service"] == nil) {
		found = append(found, webhookProblem{"clientConfig", "must have either a url or a service"})
	}
	return found
}
