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

// servingCert are the annotations of a Service for which a controller creates a Secret with a certificate.
var servingCert = []string{"service.beta.openshift.io/serving-cert-secret-name",
	"service.alpha.openshift.io/serving-cert-secret-name"}

// issuing are the annotations for which cert-manager creates the Secrets that an Ingress or a Gateway names.
var issuing = []string{"cert-manager.io/issuer", "cert-manager.io/cluster-issuer", "certmanager.k8s.io/issuer",
	"certmanager.k8s.io/cluster-issuer"}

// issued are the fields with the names of these Secrets.
var issued = map[schema.GroupKind]rule{
	kinds.Ingress: {path: "spec.tls.secretName", to: kinds.Secret},
	kinds.Gateway: {path: "spec.listeners.tls.certificateRefs.name", to: kinds.Secret},
}

// isIssued reports whether cert-manager creates the Secrets that an object with some annotations names.
func isIssued(annotations map[string]string) bool {
	return annotations["kubernetes.io/tls-acme"] == "true" ||
		slices.ContainsFunc(issuing, func(key string) bool { return annotations[key] != "" })
}

// makers are the fields of custom resources with the names of the objects that well-known controllers create for them.
var makers = map[schema.GroupKind]rule{
	{Group: "cert-manager.io", Kind: "Certificate"}:        {path: "spec.secretName", to: kinds.Secret},
	{Group: "external-secrets.io", Kind: "ExternalSecret"}: {path: "spec.target.name", to: kinds.Secret},
	{Group: "bitnami.com", Kind: "SealedSecret"}:           {path: "metadata.name", to: kinds.Secret},
	kinds.CredentialsRequest: {
		path:         "spec.secretRef.name",
		to:           kinds.Secret,
		hasNamespace: true,
	},
}

// Made returns the objects that a controller makes of an object: by the custom resources and annotations of well-known
// ones, and by what definitions declare.
func (d Definitions) Made(object *unstructured.Unstructured) []kinds.ID {
	var made []kinds.ID
	for _, key := range servingCert {
		if name := object.GetAnnotations()[key]; name != "" {
			made = append(made, kinds.NewID(kinds.Secret, object.GetNamespace(), name))
		}
	}
	kind := object.GroupVersionKind().GroupKind()
	rules := slices.Clip(d[kind].makes)
	if maker, isKnown := makers[kind]; isKnown {
		if target, _, _ := unstructured.NestedString(object.Object, "spec", "target",
			"name"); kind.Kind == "ExternalSecret" && target == "" {
			maker.path = "metadata.name" // the default
		}
		rules = append(rules, maker)
	}
	if certificate, isKnown := issued[kind]; isKnown && isIssued(object.GetAnnotations()) {
		rules = append(rules, certificate)
	}
	f := &finder{definitions: d, object: object}
	f.findAll(nil, rules)
	for _, reference := range f.found {
		made = append(made, reference.To)
	}
	return made
}
