package references

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A rule is a field that refers to an object. The path may lead through lists.
type rule struct {
	path string // path to the field with the name
	to   schema.GroupKind

	hasNamespace bool // a namespace field beside it has the namespace of the object
	isKindNamed  bool // a kind field beside it has the kind of the object, which the rule compares

	overriddenBy string // another field beside it, which takes precedence if it is set
	builtInName  string // the name of an object that Kubernetes creates itself, which is no reference

	isCertificate bool // the Secret must have a certificate and its key

	isGateway bool // kind and namespace fields beside it are optional: Service, and the namespace of the object

	isDeclared bool // an annotation declares the rule: a namespace field beside it may have the namespace of the object

	consequence Consequence
}

// podRules are the fields of pods. Without a pull secret, pods start if their images need none.
var podRules = []rule{
	{path: "serviceAccountName", to: kinds.ServiceAccount, builtInName: "default", consequence: PodsWait},
	// the deprecated name of the field
	{
		path:         "serviceAccount",
		to:           kinds.ServiceAccount,
		builtInName:  "default",
		overriddenBy: "serviceAccountName",
		consequence:  PodsWait,
	},
	{path: "priorityClassName", to: kinds.PriorityClass, consequence: PodsWait},
	{path: "runtimeClassName", to: kinds.RuntimeClass, consequence: PodsWait},
	{path: "imagePullSecrets.name", to: kinds.Secret},
	{path: "volumes.secret.secretName", to: kinds.Secret, consequence: PodsWait},
	{path: "volumes.configMap.name", to: kinds.ConfigMap, consequence: PodsWait},
	{path: "volumes.persistentVolumeClaim.claimName", to: kinds.PersistentVolumeClaim, consequence: PodsWait},
	{path: "volumes.csi.nodePublishSecretRef.name", to: kinds.Secret, consequence: PodsWait},
	{path: "volumes.projected.sources.secret.name", to: kinds.Secret, consequence: PodsWait},
	{path: "volumes.projected.sources.configMap.name", to: kinds.ConfigMap, consequence: PodsWait},
	{
		path:        "volumes.ephemeral.volumeClaimTemplate.spec.storageClassName",
		to:          kinds.StorageClass,
		consequence: PodsWait,
	},
}

// containerRules are the fields of each container.
var containerRules = []rule{
	{path: "envFrom.secretRef.name", to: kinds.Secret, consequence: PodsWait},
	{path: "envFrom.configMapRef.name", to: kinds.ConfigMap, consequence: PodsWait},
	{path: "env.valueFrom.secretKeyRef.name", to: kinds.Secret, consequence: PodsWait},
	{path: "env.valueFrom.configMapKeyRef.name", to: kinds.ConfigMap, consequence: PodsWait},
}

// clientConfigRules are the fields of a client configuration.
var clientConfigRules = []rule{{path: "service.name", to: kinds.Service, hasNamespace: true}}

// subjects are the accounts of a binding.
var subjects = rule{
	path:         "subjects.name",
	to:           kinds.ServiceAccount,
	hasNamespace: true,
	isKindNamed:  true,
	consequence:  Harmless,
	builtInName:  "default",
}

// backends are the Services of a route of the Gateway API.
var backends = []rule{{path: "spec.rules.backendRefs.name", to: kinds.Service, isGateway: true}}

// rules are the fields of other kinds, and those beside the pods of a workload.
var rules = map[schema.GroupKind][]rule{
	kinds.StatefulSet: {
		{path: "spec.serviceName", to: kinds.Service},
		{path: "spec.volumeClaimTemplates.spec.storageClassName", to: kinds.StorageClass, consequence: PodsWait},
	},
	kinds.ServiceAccount: {{path: "imagePullSecrets.name", to: kinds.Secret}},
	kinds.PersistentVolumeClaim: {
		{path: "spec.storageClassName", to: kinds.StorageClass, consequence: PodsWait},
		{path: "spec.volumeName", to: kinds.PersistentVolume, consequence: PodsWait},
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
		{path: "spec.tls.secretName", to: kinds.Secret, isCertificate: true},
	},
	kinds.Route: {
		{path: "spec.to.name", to: kinds.Service, isKindNamed: true},
		{path: "spec.alternateBackends.name", to: kinds.Service, isKindNamed: true},
	},
	kinds.HTTPRoute: backends,
	kinds.GRPCRoute: backends,
	kinds.TLSRoute:  backends,
	kinds.TCPRoute:  backends,
	kinds.UDPRoute:  backends,
	kinds.RoleBinding: {
		{path: "roleRef.name", to: kinds.Role, isKindNamed: true},
		{path: "roleRef.name", to: kinds.ClusterRole, isKindNamed: true},
		subjects,
	},
	kinds.ClusterRoleBinding:               {{path: "roleRef.name", to: kinds.ClusterRole}, subjects},
	kinds.ValidatingAdmissionPolicyBinding: {{path: "spec.policyName", to: kinds.ValidatingAdmissionPolicy}},
}
