package operator_test

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// proxies is the definition of OpenShift's Proxy, as far as the test needs it.
const proxies = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: proxies.config.openshift.io, annotations: {api-approved.kubernetes.io: "https://github.com/openshift/api/pull/470"}}
spec:
  group: config.openshift.io
  names: {kind: Proxy, plural: proxies}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// TestTheProxyOfTheCluster is injected into manifests that request it, and kept in place like their other fields.
func TestTheProxyOfTheCluster(t *testing.T) {
	t.Parallel()
	const web = `
-- 0000_20_web_10_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {config.openshift.io/inject-proxy: web}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:1"}]}
`
	s := newStage(t)
	definition := &unstructured.Unstructured{}
	s.must(yaml.Unmarshal([]byte(proxies), &definition.Object))
	s.must(s.client.Create(t.Context(), definition))
	proxy := &configv1.Proxy{}
	proxy.Name, proxy.Status.HTTPSProxy = "cluster", "http://proxy.example:3128"
	s.await("the proxy is there", func() bool { return s.client.Create(t.Context(), proxy) == nil })
	s.beginWith("1.0.0", shop+web)
	s.until("installed", isAt("1.0.0"))
	var deployment appsv1.Deployment
	env := func() string {
		s.must(s.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &deployment))
		var all []string
		for _, envVar := range deployment.Spec.Template.Spec.Containers[0].Env {
			all = append(all, envVar.Name+"="+envVar.Value)
		}
		return strings.Join(all, " ")
	}
	if got, want := env(), "HTTPS_PROXY=http://proxy.example:3128 HTTP_PROXY= NO_PROXY="; got != want {
		t.Fatalf("the environment is %q, want %q", got, want)
	}
	patch := client.MergeFrom(deployment.DeepCopy()) // its controller may write the status now
	deployment.Spec.Template.Spec.Containers[0].Env = nil
	s.must(s.client.Patch(t.Context(), &deployment, patch))
	s.await("it is put back", func() bool { return strings.Contains(env(), "proxy.example") })
}
