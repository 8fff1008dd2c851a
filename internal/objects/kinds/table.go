package kinds

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A row contains the properties of a kind that do not follow from its scope or its API group. Rules whose values are
// functions, such as those of readiness, are in the packages that have the functions, by kind.
type row struct {
	raisesGeneration bool   // see RaisesGeneration
	podSpec          string // see PodSpec
	podSelector      string // see PodSelector
	clientConfig     string // see ClientConfigPath
	level            Level  // see LevelOf; the level of the group, if it is empty
	stage            Stage  // see StageOf; by scope, if it is 0
	dataLost         string // see DataLostOnDelete
	holdsData        bool   // see HoldsData
	isTransient      bool   // see IsTransient
	formerGroup      string // see StoredAs

	generated []string // see IsGenerated
}

// The paths of pod specs.
const (
	ofTemplate    = "spec.template.spec"
	ofJobTemplate = "spec.jobTemplate.spec.template.spec"
)

// The API groups of more than one kind.
const (
	admission = "admissionregistration.k8s.io"
	flows     = "flowcontrol.apiserver.k8s.io"
	gateway   = "gateway.networking.k8s.io"
	rbac      = "rbac.authorization.k8s.io"
	openshift = "authorization.openshift.io" // has served the kinds of rbac, too
)

// The kinds of the core group.
var (
	ConfigMap = define("", "ConfigMap", row{generated: []string{"kube-root-ca.crt", "openshift-service-ca.crt"}})
	Endpoints = define("", "Endpoints", row{isTransient: true})
	Namespace = define("", "Namespace", row{
		level: NamespaceLevel, stage: NamespaceStage, dataLost: "all objects in it", holdsData: true,
	})
	LimitRange            = define("", "LimitRange", row{level: RightsLevel})
	Node                  = define("", "Node", row{})
	PersistentVolume      = define("", "PersistentVolume", row{dataLost: "the data on it"})
	PersistentVolumeClaim = define("", "PersistentVolumeClaim", row{dataLost: "the data behind it", holdsData: true})
	Pod                   = define("", "Pod", row{podSpec: "spec", level: WorkloadLevel, stage: WorkloadStage})
	PodTemplate           = define("", "PodTemplate", row{raisesGeneration: true})
	ReplicationController = define("", "ReplicationController", row{
		raisesGeneration: true, podSpec: ofTemplate, level: WorkloadLevel, stage: WorkloadStage,
	})
	ResourceQuota  = define("", "ResourceQuota", row{level: RightsLevel})
	Secret         = define("", "Secret", row{})
	Service        = define("", "Service", row{podSelector: "spec.selector"})
	ServiceAccount = define("", "ServiceAccount", row{
		level: RightsLevel, stage: RightsStage, generated: []string{"default", "builder", "deployer"},
	})
)

// The kinds of workloads, and of the objects around them.
var (
	DaemonSet   = define("apps", "DaemonSet", workload("extensions"))
	Deployment  = define("apps", "Deployment", workload("extensions"))
	ReplicaSet  = define("apps", "ReplicaSet", workload("extensions"))
	StatefulSet = define("apps", "StatefulSet", workload(""))
	Job         = define("batch", "Job", workload(""))
	CronJob     = define("batch", "CronJob", row{raisesGeneration: true, podSpec: ofJobTemplate, stage: WorkloadStage})

	EndpointSlice = define("discovery.k8s.io", "EndpointSlice",
		row{raisesGeneration: true, isTransient: true})
	HorizontalPodAutoscaler = define("autoscaling", "HorizontalPodAutoscaler", row{stage: TrafficStage})
	Ingress                 = define("networking.k8s.io", "Ingress", row{
		raisesGeneration: true, stage: TrafficStage, formerGroup: "extensions",
	})
	IngressClass  = define("networking.k8s.io", "IngressClass", row{raisesGeneration: true})
	Lease         = define("coordination.k8s.io", "Lease", row{isTransient: true})
	NetworkPolicy = define("networking.k8s.io", "NetworkPolicy", row{
		raisesGeneration: true, podSelector: "spec.podSelector", level: ConfigurationLevel, formerGroup: "extensions",
	})
	PodDisruptionBudget = define("policy", "PodDisruptionBudget", row{
		raisesGeneration: true, podSelector: "spec.selector", stage: TrafficStage,
	})
	PodSecurityPolicy = define("policy", "PodSecurityPolicy", row{formerGroup: "extensions"})
	PriorityClass     = define("scheduling.k8s.io", "PriorityClass", row{})
	RuntimeClass      = define("node.k8s.io", "RuntimeClass", row{})

	CSIDriver             = define("storage.k8s.io", "CSIDriver", row{})
	StorageClass          = define("storage.k8s.io", "StorageClass", row{})
	VolumeAttributesClass = define("storage.k8s.io", "VolumeAttributesClass", row{})

	DeviceClass           = define("resource.k8s.io", "DeviceClass", row{raisesGeneration: true})
	DeviceTaintRule       = define("resource.k8s.io", "DeviceTaintRule", row{raisesGeneration: true})
	ResourceClaim         = define("resource.k8s.io", "ResourceClaim", row{})
	ResourceClaimTemplate = define("resource.k8s.io", "ResourceClaimTemplate", row{})
	ResourceSlice         = define("resource.k8s.io", "ResourceSlice", row{raisesGeneration: true})
)

// The kinds of rights.
var (
	ClusterRole        = define(rbac, "ClusterRole", row{formerGroup: openshift})
	ClusterRoleBinding = define(rbac, "ClusterRoleBinding", row{stage: BindingStage, formerGroup: openshift})
	Role               = define(rbac, "Role", row{stage: RightsStage, formerGroup: openshift})
	RoleBinding        = define(rbac, "RoleBinding", row{
		stage: BindingStage, formerGroup: openshift,
		generated: []string{"system:deployers", "system:image-builders", "system:image-pullers"},
	})
)

// The kinds that extend the API server, or have it call servers.
var (
	APIService = define("apiregistration.k8s.io", "APIService", row{clientConfig: "spec", stage: CallStage})

	CustomResourceDefinition = define("apiextensions.k8s.io", "CustomResourceDefinition", row{
		raisesGeneration: true, clientConfig: "spec.conversion.webhook.clientConfig",
		level: DefinitionLevel, stage: DefinitionStage, dataLost: "all objects of its kind", holdsData: true,
	})

	FlowSchema                 = define(flows, "FlowSchema", row{raisesGeneration: true})
	PriorityLevelConfiguration = define(flows, "PriorityLevelConfiguration", row{raisesGeneration: true})

	MutatingAdmissionPolicy          = define(admission, "MutatingAdmissionPolicy", admissionPolicy)
	MutatingAdmissionPolicyBinding   = define(admission, "MutatingAdmissionPolicyBinding", admissionPolicy)
	MutatingWebhookConfiguration     = define(admission, "MutatingWebhookConfiguration", admissionWebhooks)
	ValidatingAdmissionPolicy        = define(admission, "ValidatingAdmissionPolicy", admissionPolicy)
	ValidatingAdmissionPolicyBinding = define(admission, "ValidatingAdmissionPolicyBinding", admissionPolicy)
	ValidatingWebhookConfiguration   = define(admission, "ValidatingWebhookConfiguration", admissionWebhooks)
)

// Kinds of custom resources that have rules of their own.
var (
	ClusterOperator = define("config.openshift.io", "ClusterOperator", row{})
	ClusterVersion  = define("config.openshift.io", "ClusterVersion", row{})
	FeatureGate     = define("config.openshift.io", "FeatureGate", row{})

	CredentialsRequest = define("cloudcredential.openshift.io", "CredentialsRequest", row{})

	Route = define("route.openshift.io", "Route", row{})

	SecurityContextConstraints = define("security.openshift.io", "SecurityContextConstraints", row{})

	Gateway      = define(gateway, "Gateway", row{})
	GatewayClass = define(gateway, "GatewayClass", row{})
	GRPCRoute    = define(gateway, "GRPCRoute", row{})
	HTTPRoute    = define(gateway, "HTTPRoute", row{})
	TCPRoute     = define(gateway, "TCPRoute", row{})
	TLSRoute     = define(gateway, "TLSRoute", row{})
	UDPRoute     = define(gateway, "UDPRoute", row{})
)

// The rows that several kinds have in common.
var (
	admissionPolicy   = row{raisesGeneration: true, stage: PolicyStage}
	admissionWebhooks = row{raisesGeneration: true, clientConfig: "webhooks.clientConfig", stage: CallStage}
)

func workload(formerGroup string) row {
	return row{raisesGeneration: true, podSpec: ofTemplate, stage: WorkloadStage, formerGroup: formerGroup}
}

// kindTable contains the rows of all kinds that are defined here, and former the kinds by the kinds of groups that have
// served them.
var (
	kindTable = map[schema.GroupKind]row{}
	former    = map[schema.GroupKind]schema.GroupKind{}
)

// define adds a kind to the table.
func define(group, name string, properties row) schema.GroupKind {
	kind := schema.GroupKind{Group: group, Kind: name}
	kindTable[kind] = properties
	if properties.formerGroup != "" {
		former[schema.GroupKind{Group: properties.formerGroup, Kind: name}] = kind
	}
	return kind
}

// RaisesGeneration reports whether each change of an object of a built-in kind, other than of its metadata and status,
// raises its generation. If the generation is 0, no change does: the object is from a server whose version of the kind
// had no generations.
//
// Some kinds with a generation are not among them: binding a Pod to its node and changing the description of a
// PriorityClass do not raise it, and a CSIDriver has none until its first change.
func RaisesGeneration(kind schema.GroupKind) bool { return kindTable[kind].raisesGeneration }

// PodSpec returns the path of the spec of a kind's pods; nil if it has none.
func PodSpec(kind schema.GroupKind) []string { return keys(kindTable[kind].podSpec) }

// ClientConfigPath returns the path of the mappings of a kind that configure which servers the API server calls, as
// ClientConfigs returns them; nil if it calls none. The path may lead through a list.
func ClientConfigPath(kind schema.GroupKind) []string { return keys(kindTable[kind].clientConfig) }

// PodSelector returns the path of the selector by which objects of a kind select pods; nil if they select none.
func PodSelector(kind schema.GroupKind) []string { return keys(kindTable[kind].podSelector) }

func keys(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// IsWorkload reports whether objects of a kind create pods and can be rolled out, or are Jobs.
func IsWorkload(kind schema.GroupKind) bool {
	return (kind.Group == Deployment.Group || kind.Group == Job.Group) && kindTable[kind].podSpec != ""
}

// DataLostOnDelete returns a description of the data that is lost when an object of a kind is deleted, because no
// manifest restores it; "" for most kinds.
func DataLostOnDelete(kind schema.GroupKind) string { return kindTable[kind].dataLost }

// HoldsData reports whether an object of a kind has content that a new object of the same manifest lacks, so that it
// must not be deleted and recreated.
func HoldsData(kind schema.GroupKind) bool { return kindTable[kind].holdsData }

// IsTransient reports whether objects of a kind are left behind by processes, or follow from other objects.
func IsTransient(kind schema.GroupKind) bool { return kindTable[kind].isTransient }

// IsGenerated reports whether Kubernetes or OpenShift creates an object in every namespace.
func IsGenerated(id ID) bool { return slices.Contains(kindTable[id.GroupKind()].generated, id.Name) }

// StoredAs returns the kind under which objects of a kind are stored. If two groups serve or served the kind, an object
// exists in both, so a delete in one group deletes it in the other.
func StoredAs(kind schema.GroupKind) schema.GroupKind {
	if stored, isFormer := former[kind]; isFormer {
		return stored
	}
	return kind
}

// HasWebhooks reports whether objects of a kind configure admission webhooks.
func HasWebhooks(kind schema.GroupKind) bool {
	return kindTable[kind].clientConfig == admissionWebhooks.clientConfig
}

// Callers returns the kinds whose objects have the API server call servers, in a stable order.
func Callers() []schema.GroupKind {
	var callers []schema.GroupKind
	for kind, properties := range kindTable {
		if properties.clientConfig != "" {
			callers = append(callers, kind)
		}
	}
	slices.SortFunc(callers, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return callers
}
