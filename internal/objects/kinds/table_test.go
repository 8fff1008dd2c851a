package kinds_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// TestStagesAndLevels compares the order of an uninstall and that of a release without numbers, for kinds of each
// stage.
func TestStagesAndLevels(t *testing.T) {
	t.Parallel()
	custom := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	for kind, want := range map[schema.GroupKind]string{
		kinds.ValidatingAdmissionPolicyBinding: "admission policies, level 70",
		custom:                                 "custom resources, level unknown",
		kinds.APIService:                       "webhooks and APIServices, level 70",
		kinds.MutatingWebhookConfiguration:     "webhooks and APIServices, level 70",
		kinds.Ingress:                          "ingresses, autoscalers and disruption budgets, level 70",
		kinds.CronJob:                          "workloads, level 60",
		kinds.Pod:                              "workloads, level 60",
		kinds.ConfigMap:                        "services, configuration and storage, level 40",
		kinds.NetworkPolicy:                    "services, configuration and storage, level 40",
		kinds.ResourceQuota:                    "services, configuration and storage, level 30",
		kinds.ClusterRoleBinding:               "role bindings, level 30",
		kinds.PersistentVolume:                 "roles, accounts and classes, level 40",
		kinds.ServiceAccount:                   "roles, accounts and classes, level 30",
		kinds.CustomResourceDefinition:         "definitions, level 20",
		kinds.Namespace:                        "namespaces, level 10",
	} {
		level, isKnown := kinds.LevelOf(kind)
		if !isKnown {
			level = "unknown"
		}
		if got := fmt.Sprintf("%s, level %s", kinds.StageOf(kind), level); got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
}

// TestTableNamesKinds looks for rows of groups of Kubernetes whose kind is misspelt.
func TestTableNamesKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds.Table() {
		isServed := len(kinds.Scheme().VersionsForGroupKind(kind)) > 0 || kind == kinds.PodSecurityPolicy
		if kinds.Scheme().IsGroupRegistered(kind.Group) && !isServed {
			t.Errorf("Kubernetes has no kind %s", kind)
		}
	}
}

func TestStoredAs(t *testing.T) {
	t.Parallel()
	for former, want := range map[schema.GroupKind]schema.GroupKind{
		{Group: "extensions", Kind: "Deployment"}:           kinds.Deployment,
		{Group: "authorization.openshift.io", Kind: "Role"}: kinds.Role,
		{Group: "extensions", Kind: "StatefulSet"}:          {Group: "extensions", Kind: "StatefulSet"},
		kinds.StatefulSet: kinds.StatefulSet,
		{Group: "authorization.openshift.io", Kind: "Service"}: {Group: "authorization.openshift.io", Kind: "Service"},
	} {
		if got := kinds.StoredAs(former); got != want {
			t.Errorf("%s is stored as %s, want %s", former, got, want)
		}
	}
}

func TestKindsThatCallServers(t *testing.T) {
	t.Parallel()
	want := []schema.GroupKind{kinds.APIService, kinds.CustomResourceDefinition, kinds.MutatingWebhookConfiguration,
		kinds.ValidatingWebhookConfiguration}
	if got := kinds.Callers(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
