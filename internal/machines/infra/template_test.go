package infra_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/internal/machines/infra"
)

const example = `write an object, as {"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "ExternalMachine", "spec": {}}`

func TestTemplatesThatNameNoInfrastructure(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"nothing", ``, "providerSpec.value: it is missing: " + example},
		{"null", `null`, "providerSpec.value: it is missing: " + example},
		{"empty", `{}`, "providerSpec.value: it is missing: " + example},
		{"text", `"m5.large"`, "providerSpec.value: it is not an object: " + example},
		{"no kind", `{"apiVersion":"a.b/v1"}`, "providerSpec.value: it has no apiVersion or no kind: " + example},
		{"no apiVersion", `{"kind":"K"}`, "providerSpec.value: it has no apiVersion or no kind: " + example},
		{
			"OpenShift's", `{"apiVersion":"machine.openshift.io/v1beta1","kind":"AWSMachineProviderConfig","ami":{}}`,
			"providerSpec.value: kind AWSMachineProviderConfig of machine.openshift.io/v1beta1 is read by " +
				"OpenShift's own " +
				"machine controllers, and is not a kind of infrastructure: " + example,
		},
		{
			"OpenShift's of another group",
			`{"apiVersion":"baremetal.cluster.k8s.io/v1alpha1","kind":"BareMetalMachineProviderSpec"}`,
			"providerSpec.value: kind BareMetalMachineProviderSpec of baremetal.cluster.k8s.io/v1alpha1 is read by " +
				"OpenShift's own " +
				"machine controllers, and is not a kind of infrastructure: " + example,
		},
		{
			"a machine", `{"apiVersion":"machine.openshift.io/v1beta1","kind":"Machine"}`,
			"providerSpec.value: kind Machine of machine.openshift.io/v1beta1 is read by OpenShift's own " +
				"machine controllers, and is not a kind of infrastructure: " + example,
		},
		{
			"Kubernetes' own", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{}}`,
			"providerSpec.value: kind Lease of coordination.k8s.io/v1 is Kubernetes' own, and no kind of " +
				"infrastructure: " + example,
		},
		{
			"a core kind", `{"apiVersion":"v1","kind":"Pod","spec":{}}`,
			"providerSpec.value: kind Pod of v1 is Kubernetes' own, and no kind of infrastructure: " + example,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := infra.ParseTemplate(&runtime.RawExtension{Raw: []byte(c.value)})
			if !errors.As(err, new(*infra.InvalidError)) || err.Error() != c.want {
				t.Errorf("%T: %v\nwant %s", err, err, c.want)
			}
		})
	}
	if _, err := infra.ParseTemplate(nil); !errors.As(err, new(*infra.InvalidError)) {
		t.Errorf("of no value: %v", err)
	}
}

func TestTemplate(t *testing.T) {
	for _, value := range []string{
		`{"apiVersion":"a.b/v1","kind":"K"}`,
		`{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"K","metadata":{"creationTimestamp":null},"spec":{"a":1}}`,
	} {
		template, err := infra.ParseTemplate(&runtime.RawExtension{Raw: []byte(value)})
		if err != nil || template.GetKind() != "K" {
			t.Errorf("%s: %v, %v", value, template, err)
		}
	}
}
