package ownership

import (
	"encoding/base64"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// Draft returns the object to apply for a manifest: with a label added, and without fields that
// the server or other controllers set.
func Draft(manifest *unstructured.Unstructured, label, value string) *unstructured.Unstructured {
	draft := (&unstructured.Unstructured{Object: fields.WithoutServers(manifest.Object)}).DeepCopy()
	labels := draft.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[label] = value
	draft.SetLabels(labels)
	if isAggregated(draft) {
		delete(draft.Object, "rules")
	}
	if draft.GroupVersionKind().GroupKind() == kinds.Secret {
		writeAsData(draft)
	}
	if draft.GroupVersionKind().GroupKind() == kinds.ClusterOperator {
		completeOperator(draft, value)
	}
	for _, config := range kinds.ClientConfigs(draft) {
		if bundle, _ := config[bundleField].(string); isInjected(draft) || isBlank(bundle) {
			delete(config, bundleField)
		}
	}
	return draft
}

// The release of the operator in a cluster, and the prefixes of annotations by which "oc adm upgrade status" knows the
// ClusterOperators that take part in its updates. It counts no others.
const (
	operatorsRelease = "default"
	includePrefix    = "include.release.openshift.io/"
	excludePrefix    = "exclude.release.openshift.io/"
)

// completeOperator adds to a ClusterOperator the fields that its definition and OpenShift's client require, and
// manifests may lack.
func completeOperator(draft *unstructured.Unstructured, release string) {
	if _, hasSpec := draft.Object["spec"]; !hasSpec { // usual in real releases
		draft.Object["spec"] = map[string]any{}
	}
	annotations := draft.GetAnnotations()
	for name := range annotations {
		if strings.HasPrefix(name, includePrefix) || strings.HasPrefix(name, excludePrefix) {
			return
		}
	}
	if release == operatorsRelease {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[includePrefix+"runlevel"] = "true"
		draft.SetAnnotations(annotations)
	}
}

// isAggregated reports whether the rules of a ClusterRole are aggregated from others. A controller sets
// them then: to apply ours would revoke all its rights until the
// controller has aggregated them again. Manifests may have an empty list nevertheless.
func isAggregated(object *unstructured.Unstructured) bool {
	rule, _, _ := unstructured.NestedMap(object.Object, "aggregationRule")
	return object.GroupVersionKind().GroupKind() == kinds.ClusterRole && len(rule) > 0
}

// writeAsData moves the stringData of a Secret to data, as the server does. Otherwise we would only own stringData,
// which is never stored, and a dropped key would stay for ever. The server refuses a value of another type.
func writeAsData(secret *unstructured.Unstructured) {
	texts, exists, err := unstructured.NestedStringMap(secret.Object, "stringData")
	data, _, dataErr := unstructured.NestedMap(secret.Object, "data")
	if !exists || err != nil || dataErr != nil {
		return
	}
	if data == nil {
		data = map[string]any{}
	}
	for name, text := range texts {
		data[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	secret.Object["data"] = data
	delete(secret.Object, "stringData")
}

// bundleField is the field with the certificates by which the API server verifies the servers that it calls.
const bundleField = "caBundle"

// injectors are the annotations for which a controller writes the certificates.
var injectors = []string{
	"service.beta.openshift.io/inject-cabundle",
	"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret", "cert-manager.io/inject-apiserver-ca",
}

// isInjected reports whether another controller writes the certificates of an object.
func isInjected(object *unstructured.Unstructured) bool {
	annotations := object.GetAnnotations()
	return slices.ContainsFunc(injectors, func(name string) bool { return annotations[name] != "" })
}

// isBlank reports whether a bundle is only a placeholder, such as the line break in many
// generated manifests.
func isBlank(bundle string) bool {
	text, err := base64.StdEncoding.DecodeString(bundle)
	return err == nil && strings.TrimSpace(string(text)) == ""
}

// Yields reports whether a field is left to the manager that has set it: certificates that
// a controller keeps up to date, and the replicas of an object that an autoscaler scales.
func Yields(object *unstructured.Unstructured, lost Conflict, isScaled bool) bool {
	if isScaled && lost.Field == strings.Join(replicas, ".") {
		return true
	}
	return strings.HasSuffix(lost.Field, "clientConfig."+bundleField) && len(kinds.ClientConfigs(object)) > 0 ||
		lost.Field == "spec."+bundleField && object.GroupVersionKind().GroupKind() == kinds.APIService
}
