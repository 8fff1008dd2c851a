package references

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A rule is a field that refers to an object. Its path may lead through lists.
type rule struct {
	path string // to the field with the name
	to   schema.GroupKind

	hasNamespace bool // a namespace field beside it has the namespace of the object
	isKindNamed  bool // a kind field beside it has the kind of the object, which the rule compares

	unless string // another field beside it, which has precedence if it is set
	made   string // the name of the object that Kubernetes creates itself

	isDeclared bool // it is from an annotation: a namespace field beside it may have the namespace of the object

	then Consequence
}

var (
	secret         = schema.GroupKind{Kind: "Secret"}
	configMap      = schema.GroupKind{Kind: "ConfigMap"}
	service        = schema.GroupKind{Kind: "Service"}
	serviceAccount = schema.GroupKind{Kind: "ServiceAccount"}
	claim          = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	volume         = schema.GroupKind{Kind: "PersistentVolume"}
	priorityClass  = schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}
	runtimeClass   = schema.GroupKind{Group: "node.k8s.io", Kind: "RuntimeClass"}
	storageClass   = schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}
	ingressClass   = schema.GroupKind{Group: "networking.k8s.io", Kind: "IngressClass"}
	policy         = schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}
	role           = schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "Role"}
	clusterRole    = schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}
)

// podSpecs are the paths of the pod specs, by kind.
var podSpecs = map[schema.GroupKind]string{
	{Kind: "Pod"}:                        "spec",
	{Kind: "ReplicationController"}:      "spec.template.spec",
	{Group: "apps", Kind: "Deployment"}:  "spec.template.spec",
	{Group: "apps", Kind: "StatefulSet"}: "spec.template.spec",
	{Group: "apps", Kind: "DaemonSet"}:   "spec.template.spec",
	{Group: "apps", Kind: "ReplicaSet"}:  "spec.template.spec",
	{Group: "batch", Kind: "Job"}:        "spec.template.spec",
	{Group: "batch", Kind: "CronJob"}:    "spec.jobTemplate.spec.template.spec",
}

// ofPods are the fields of pods. Without a pull secret, pods start if their images need none.
var ofPods = []rule{
	{path: "serviceAccountName", to: serviceAccount, made: "default", then: PodsWait},
	// its old name
	{path: "serviceAccount", to: serviceAccount, made: "default", unless: "serviceAccountName", then: PodsWait},
	{path: "priorityClassName", to: priorityClass, then: PodsWait},
	{path: "runtimeClassName", to: runtimeClass, then: PodsWait},
	{path: "imagePullSecrets.name", to: secret},
	{path: "volumes.secret.secretName", to: secret, then: PodsWait},
	{path: "volumes.configMap.name", to: configMap, then: PodsWait},
	{path: "volumes.persistentVolumeClaim.claimName", to: claim, then: PodsWait},
	{path: "volumes.csi.nodePublishSecretRef.name", to: secret, then: PodsWait},
	{path: "volumes.projected.sources.secret.name", to: secret, then: PodsWait},
	{path: "volumes.projected.sources.configMap.name", to: configMap, then: PodsWait},
	{path: "volumes.ephemeral.volumeClaimTemplate.spec.storageClassName", to: storageClass, then: PodsWait},
	{path: "initContainers.envFrom.secretRef.name", to: secret, then: PodsWait},
	{path: "initContainers.envFrom.configMapRef.name", to: configMap, then: PodsWait},
	{path: "initContainers.env.valueFrom.secretKeyRef.name", to: secret, then: PodsWait},
	{path: "initContainers.env.valueFrom.configMapKeyRef.name", to: configMap, then: PodsWait},
	{path: "containers.envFrom.secretRef.name", to: secret, then: PodsWait},
	{path: "containers.envFrom.configMapRef.name", to: configMap, then: PodsWait},
	{path: "containers.env.valueFrom.secretKeyRef.name", to: secret, then: PodsWait},
	{path: "containers.env.valueFrom.configMapKeyRef.name", to: configMap, then: PodsWait},
}

// subjects are the accounts of a binding.
var subjects = rule{
	path:         "subjects.name",
	to:           serviceAccount,
	hasNamespace: true,
	isKindNamed:  true,
	then:         Harmless,
	made:         "default",
}

// rules are the fields of other kinds, and those beside the pods of a workload.
var rules = map[schema.GroupKind][]rule{
	{Group: "apps", Kind: "StatefulSet"}: {
		{path: "spec.serviceName", to: service},
		{path: "spec.volumeClaimTemplates.spec.storageClassName", to: storageClass, then: PodsWait},
	},
	{Kind: "ServiceAccount"}: {{path: "imagePullSecrets.name", to: secret}},
	{Kind: "PersistentVolumeClaim"}: {
		{path: "spec.storageClassName", to: storageClass, then: PodsWait},
		{path: "spec.volumeName", to: volume, then: PodsWait},
		{path: "spec.dataSource.name", to: claim, isKindNamed: true},
	},
	{Kind: "PersistentVolume"}: {
		{path: "spec.storageClassName", to: storageClass},
		{path: "spec.csi.nodePublishSecretRef.name", to: secret, hasNamespace: true},
		{path: "spec.csi.nodeStageSecretRef.name", to: secret, hasNamespace: true},
		{path: "spec.csi.controllerPublishSecretRef.name", to: secret, hasNamespace: true},
	},
	{Group: "networking.k8s.io", Kind: "Ingress"}: {
		{path: "spec.ingressClassName", to: ingressClass},
		{path: "spec.defaultBackend.service.name", to: service},
		{path: "spec.rules.http.paths.backend.service.name", to: service},
		{path: "spec.tls.secretName", to: secret},
	},
	{Group: "route.openshift.io", Kind: "Route"}: {
		{path: "spec.to.name", to: service, isKindNamed: true},
		{path: "spec.alternateBackends.name", to: service, isKindNamed: true},
	},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: {
		{path: "roleRef.name", to: role, isKindNamed: true},
		{path: "roleRef.name", to: clusterRole, isKindNamed: true},
		subjects,
	},
	{
		Group: "rbac.authorization.k8s.io",
		Kind:  "ClusterRoleBinding",
	}: {{path: "roleRef.name", to: clusterRole}, subjects},
	{
		Group: "admissionregistration.k8s.io",
		Kind:  "ValidatingAdmissionPolicyBinding",
	}: {{path: "spec.policyName", to: policy}},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: {
		{path: "webhooks.clientConfig.service.name", to: service, hasNamespace: true},
	},
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}: {
		{path: "webhooks.clientConfig.service.name", to: service, hasNamespace: true},
	},
	{
		Group: "apiregistration.k8s.io",
		Kind:  "APIService",
	}: {{path: "spec.service.name", to: service, hasNamespace: true}},
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {
		{path: "spec.conversion.webhook.clientConfig.service.name", to: service, hasNamespace: true},
	},
}

// PodSpec returns the path of the spec of a kind's pods; nil if it has none.
func PodSpec(kind schema.GroupKind) []string {
	prefix, hasPods := podSpecs[kind]
	if !hasPods {
		return nil
	}
	return strings.Split(prefix, ".")
}
