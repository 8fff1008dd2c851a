package references

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// IsBuiltIn reports whether a cluster has an object by itself.
func IsBuiltIn(id kinds.ID) bool {
	switch kind := id.GroupKind(); {
	case kinds.IsGenerated(id):
		return true
	case kind == kinds.ConfigMap:
		return id.Namespace == "kube-system" && id.Name == "extension-apiserver-authentication"
	case kind == kinds.Role:
		return id.Namespace == "kube-system" &&
			(strings.HasPrefix(id.Name, "system:") || id.Name == "extension-apiserver-authentication-reader")
	case kind == kinds.PriorityClass:
		return strings.HasPrefix(id.Name, "system-")
	case kind == kinds.ClusterRole:
		return strings.HasPrefix(id.Name, "system:") ||
			slices.Contains([]string{"cluster-admin", "admin", "edit", "view"}, id.Name)
	default:
		return false
	}
}

// servingCertAnnotations are the annotations of a Service with the name of a Secret, which a controller creates with a
// certificate.
var servingCertAnnotations = []string{"service.beta.openshift.io/serving-cert-secret-name",
	"service.alpha.openshift.io/serving-cert-secret-name"}

// issuerAnnotations are the annotations of an Ingress or a Gateway for which cert-manager creates the named Secrets.
var issuerAnnotations = []string{"cert-manager.io/issuer", "cert-manager.io/cluster-issuer",
	"certmanager.k8s.io/issuer",
	"certmanager.k8s.io/cluster-issuer"}

// issuedSecretFields are the fields with the names of these Secrets.
var issuedSecretFields = map[schema.GroupKind]rule{
	kinds.Ingress: {path: "spec.tls.secretName", to: kinds.Secret},
	kinds.Gateway: {path: "spec.listeners.tls.certificateRefs.name", to: kinds.Secret},
}

// isIssued reports whether an object has annotations for which cert-manager creates Secrets.
func isIssued(annotations map[string]string) bool {
	return annotations["kubernetes.io/tls-acme"] == "true" ||
		slices.ContainsFunc(issuerAnnotations, func(key string) bool { return annotations[key] != "" })
}

// creatingKinds are custom resources for which well-known controllers create an object, with the field that has its
// name.
var creatingKinds = map[schema.GroupKind]rule{
	{Group: "cert-manager.io", Kind: "Certificate"}:        {path: "spec.secretName", to: kinds.Secret},
	{Group: "external-secrets.io", Kind: "ExternalSecret"}: {path: "spec.target.name", to: kinds.Secret},
	{Group: "bitnami.com", Kind: "SealedSecret"}:           {path: "metadata.name", to: kinds.Secret},
	kinds.CredentialsRequest: {
		path:         "spec.secretRef.name",
		to:           kinds.Secret,
		hasNamespace: true,
	},
}

// CreatedFor returns the objects that controllers create for an object: well-known controllers for their custom
// resources and annotations, and others as the definitions declare.
func (d Definitions) CreatedFor(object *unstructured.Unstructured) []kinds.ID {
	var created []kinds.ID
	for _, key := range servingCertAnnotations {
		if name := object.GetAnnotations()[key]; name != "" {
			created = append(created, kinds.NewID(kinds.Secret, object.GetNamespace(), name))
		}
	}
	kind := object.GroupVersionKind().GroupKind()
	rules := slices.Clip(d[kind].creates)
	if creation, isKnown := creatingKinds[kind]; isKnown {
		if target, _, _ := unstructured.NestedString(object.Object, "spec", "target",
			"name"); kind.Kind == "ExternalSecret" && target == "" {
			creation.path = "metadata.name" // the default
		}
		rules = append(rules, creation)
	}
	if certificate, isKnown := issuedSecretFields[kind]; isKnown && isIssued(object.GetAnnotations()) {
		rules = append(rules, certificate)
	}
	f := &finder{definitions: d, object: object}
	f.findAll(nil, rules)
	for _, reference := range f.found {
		created = append(created, reference.To)
	}
	return created
}
