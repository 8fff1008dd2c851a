package references

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
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

// ofPods are the fields of pods. Without a pull secret, pods start if their images need none.
var ofPods = []rule{
	{path: "serviceAccountName", to: kinds.ServiceAccount, made: "default", then: PodsWait},
	// its old name
	{path: "serviceAccount", to: kinds.ServiceAccount, made: "default", unless: "serviceAccountName", then: PodsWait},
	{path: "priorityClassName", to: kinds.PriorityClass, then: PodsWait},
	{path: "runtimeClassName", to: kinds.RuntimeClass, then: PodsWait},
	{path: "imagePullSecrets.name", to: kinds.Secret},
	{path: "volumes.secret.secretName", to: kinds.Secret, then: PodsWait},
	{path: "volumes.configMap.name", to: kinds.ConfigMap, then: PodsWait},
	{path: "volumes.persistentVolumeClaim.claimName", to: kinds.PersistentVolumeClaim, then: PodsWait},
	{path: "volumes.csi.nodePublishSecretRef.name", to: kinds.Secret, then: PodsWait},
	{path: "volumes.projected.sources.secret.name", to: kinds.Secret, then: PodsWait},
	{path: "volumes.projected.sources.configMap.name", to: kinds.ConfigMap, then: PodsWait},
	{path: "volumes.ephemeral.volumeClaimTemplate.spec.storageClassName", to: kinds.StorageClass, then: PodsWait},
}

// ofContainers are the fields of each container.
var ofContainers = []rule{
	{path: "envFrom.secretRef.name", to: kinds.Secret, then: PodsWait},
	{path: "envFrom.configMapRef.name", to: kinds.ConfigMap, then: PodsWait},
	{path: "env.valueFrom.secretKeyRef.name", to: kinds.Secret, then: PodsWait},
	{path: "env.valueFrom.configMapKeyRef.name", to: kinds.ConfigMap, then: PodsWait},
}

// ofClientConfigs are the fields of a client configuration.
var ofClientConfigs = []rule{{path: "service.name", to: kinds.Service, hasNamespace: true}}

// subjects are the accounts of a binding.
var subjects = rule{
	path:         "subjects.name",
	to:           kinds.ServiceAccount,
	hasNamespace: true,
	isKindNamed:  true,
	then:         Harmless,
	made:         "default",
}

// rules are the fields of other kinds, and those beside the pods of a workload.
var rules = map[schema.GroupKind][]rule{
	kinds.StatefulSet: {
		{path: "spec.serviceName", to: kinds.Service},
		{path: "spec.volumeClaimTemplates.spec.storageClassName", to: kinds.StorageClass, then: PodsWait},
	},
	kinds.ServiceAccount: {{path: "imagePullSecrets.name", to: kinds.Secret}},
	kinds.PersistentVolumeClaim: {
		{path: "spec.storageClassName", to: kinds.StorageClass, then: PodsWait},
		{path: "spec.volumeName", to: kinds.PersistentVolume, then: PodsWait},
		{path: "spec.dataSource.name", to: kinds.PersistentVolumeClaim, isKindNamed: true},
	},
	kinds.PersistentVolume: {
		{path: "spec.storageClassName", to: kinds.StorageClass},
		{path: "spec.csi.nodePublishSecretRef.name", to: kinds.Secret, hasNamespace: true},
		{path: "spec.csi.nodeStageSecretRef.name", to: kinds.Secret, hasNamespace: true},
		{path: "spec.csi.controllerPublishSecretRef.name", to: kinds.Secret, hasNamespace: true},
	},
	kinds.Ingress: {
		{path: "spec.ingressClassName", to: kinds.IngressClass},
		{path: "spec.defaultBackend.service.name", to: kinds.Service},
		{path: "spec.rules.http.paths.backend.service.name", to: kinds.Service},
		{path: "spec.tls.secretName", to: kinds.Secret},
	},
	kinds.Route: {
		{path: "spec.to.name", to: kinds.Service, isKindNamed: true},
		{path: "spec.alternateBackends.name", to: kinds.Service, isKindNamed: true},
	},
	kinds.RoleBinding: {
		{path: "roleRef.name", to: kinds.Role, isKindNamed: true},
		{path: "roleRef.name", to: kinds.ClusterRole, isKindNamed: true},
		subjects,
	},
	kinds.ClusterRoleBinding:               {{path: "roleRef.name", to: kinds.ClusterRole}, subjects},
	kinds.ValidatingAdmissionPolicyBinding: {{path: "spec.policyName", to: kinds.ValidatingAdmissionPolicy}},
}
