package kinds

import (
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Scope reports whether objects of a kind are in a namespace.
type Scope string

// The scopes, as CustomResourceDefinitions write them.
const (
	Unknown    Scope = "" // not a built-in kind
	Namespaced Scope = "Namespaced"
	Cluster    Scope = "Cluster"
)

// ScopeOf returns the scope of a kind.
func ScopeOf(kind schema.GroupKind) Scope { return scopes()[kind] }

// BuiltIn returns the scopes of all built-in kinds.
func BuiltIn() map[schema.GroupKind]Scope { return maps.Clone(scopes()) }

// scopes returns the scopes of all kinds.
var scopes = sync.OnceValue(func() map[schema.GroupKind]Scope {
	found := map[schema.GroupKind]Scope{}
	for scope, groups := range kindsByScope {
		for group, names := range groups {
			for name := range strings.FieldsSeq(names) {
				found[schema.GroupKind{Group: group, Kind: name}] = scope
			}
		}
	}
	return found
})

// kindsByScope contains the built-in kinds by their API groups: those of Kubernetes' client, in any of its versions,
// and the two kinds that other clients have. A test compares it with that client. The program does not, since
// reflection on methods makes the linker keep all methods of all types.
var kindsByScope = map[Scope]map[string]string{
	Cluster: {
		"": "ComponentStatus Namespace Node PersistentVolume",
		"admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding " +
			"MutatingWebhookConfiguration ValidatingAdmissionPolicy " +
			"ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
		"apiextensions.k8s.io":         "CustomResourceDefinition",
		"apiregistration.k8s.io":       "APIService",
		"authentication.k8s.io":        "SelfSubjectReview TokenReview",
		"authorization.k8s.io":         "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
		"certificates.k8s.io":          "CertificateSigningRequest ClusterTrustBundle",
		"flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
		"internal.apiserver.k8s.io":    "StorageVersion",
		"networking.k8s.io":            "IPAddress IngressClass ServiceCIDR",
		"node.k8s.io":                  "RuntimeClass",
		"rbac.authorization.k8s.io":    "ClusterRole ClusterRoleBinding",
		"resource.k8s.io":              "DeviceClass DeviceTaintRule ResourcePoolStatusRequest ResourceSlice",
		"scheduling.k8s.io":            "PriorityClass",
		"storage.k8s.io":               "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass",
		"storagemigration.k8s.io":      "StorageVersionMigration",
	},
	Namespaced: {
		"": "ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate " +
			"ReplicationController ResourceQuota Secret Service ServiceAccount",
		"apps":                      "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
		"authorization.k8s.io":      "LocalSubjectAccessReview",
		"autoscaling":               "HorizontalPodAutoscaler",
		"batch":                     "CronJob Job",
		"certificates.k8s.io":       "PodCertificateRequest",
		"coordination.k8s.io":       "Lease LeaseCandidate",
		"discovery.k8s.io":          "EndpointSlice",
		"events.k8s.io":             "Event",
		"extensions":                "DaemonSet Deployment Ingress NetworkPolicy ReplicaSet",
		"lifecycle.k8s.io":          "Eviction EvictionRequest",
		"networking.k8s.io":         "Ingress NetworkPolicy",
		"policy":                    "PodDisruptionBudget",
		"rbac.authorization.k8s.io": "Role RoleBinding",
		"resource.k8s.io":           "ResourceClaim ResourceClaimTemplate",
		"scheduling.k8s.io":         "CompositePodGroup PodGroup Workload",
		"storage.k8s.io":            "CSIStorageCapacity",
	},
}
