package uninstall

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Stage is the objects that are deleted at the same time. The next stage begins when they are gone.
type Stage struct {
	Name    string
	Objects []objectmeta.LiveMetadata
}

// Counts returns how many objects of each kind the stage has.
func (s Stage) Counts() kinds.ObjectCounts { return countsOf(s.Objects) }

// A rank is the place of a kind in the order of deletion: what needs other objects goes before them.
type rank int

const (
	ofPolicies    rank = iota // they have custom resources as parameters
	ofCustom                  // their controllers remove their finalizers
	ofCalls                   // the API server calls Services because of them
	ofRoutes                  // they lead to workloads, or scale and protect them
	ofWorkloads               //
	ofSettings                // workloads use them: Services, configuration, volumes
	ofBindings                // workloads have had rights by them
	ofRights                  // bindings name them; and what is in no namespace otherwise
	ofDefinitions             // custom resources end with them
	ofNamespaces              // everything in them ends with them
)

var rankNames = [...]string{
	ofPolicies: "admission policies", ofCustom: "custom resources", ofCalls: "webhooks and APIServices",
	ofRoutes:    "ingresses, autoscalers and disruption budgets",
	ofWorkloads: "workloads", ofSettings: "services, configuration and storage", ofBindings: "role bindings",
	ofRights:      "roles, accounts and classes",
	ofDefinitions: "definitions", ofNamespaces: "namespaces",
}

// ranks are those of kinds that do not follow from their scope.
var ranks = map[schema.GroupKind]rank{
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: ofPolicies,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:        ofPolicies,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:   ofPolicies,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:          ofPolicies,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:   ofCalls,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:     ofCalls,
	kinds.APIService: ofCalls,
	{Group: "networking.k8s.io", Kind: "Ingress"}:           ofRoutes,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: ofRoutes,
	{Group: "policy", Kind: "PodDisruptionBudget"}:          ofRoutes,
	kinds.Deployment:                                          ofWorkloads,
	{Group: "apps", Kind: "StatefulSet"}:                      ofWorkloads,
	{Group: "apps", Kind: "DaemonSet"}:                        ofWorkloads,
	{Group: "apps", Kind: "ReplicaSet"}:                       ofWorkloads,
	{Kind: "ReplicationController"}:                           ofWorkloads,
	kinds.Job:                                                 ofWorkloads,
	{Group: "batch", Kind: "CronJob"}:                         ofWorkloads,
	{Kind: "Pod"}:                                             ofWorkloads,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: ofBindings,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: ofBindings,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:               ofRights,
	{Kind: "ServiceAccount"}:                                         ofRights,
	kinds.CustomResourceDefinition:                                   ofDefinitions,
	kinds.Namespace:                                                  ofNamespaces,
}

// rankOf returns the rank of a kind.
func rankOf(kind schema.GroupKind) rank {
	if known, isRanked := ranks[kind]; isRanked {
		return known
	}
	switch kinds.ScopeOf(kind) {
	case kinds.Unknown:
		return ofCustom
	case kinds.Cluster:
		return ofRights
	default:
		return ofSettings
	}
}

// stagesOf returns the stages in which objects are deleted.
func stagesOf(objects []objectmeta.LiveMetadata) []Stage {
	byRank := map[rank][]objectmeta.LiveMetadata{}
	for _, head := range objects {
		at := rankOf(head.ID.GroupKind())
		byRank[at] = append(byRank[at], head)
	}
	var stages []Stage
	for at, name := range rankNames {
		if found := byRank[rank(at)]; len(found) > 0 {
			stages = append(stages, Stage{Name: name, Objects: found})
		}
	}
	return stages
}

// kindsOf returns the kinds of objects, each once.
func kindsOf(objects []objectmeta.LiveMetadata) []schema.GroupKind {
	var found []schema.GroupKind
	for _, head := range objects {
		if kind := head.ID.GroupKind(); !slices.Contains(found, kind) {
			found = append(found, kind)
		}
	}
	return found
}
