package manifests_test

import (
	"context"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

const finalizer = "machine.machine.openshift.io"

// readyToRun contains the fields of a machine's spec that a test needs but does not check.
const readyToRun = `providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine, spec: {}}}`

// admission applies the policies, and waits until they are in force. It returns a namespace for the test.
func admission(t *testing.T) (client.Client, string) {
	t.Helper()
	namespace, c := shared.Namespace(t), shared.Client(t)
	apply(t, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	sandboxtest.Eventually(t, "the policies are in force", func(ctx context.Context) bool {
		machine, set := newMachine(t, namespace, `{}`), newSet(t, namespace, `{selector: {}, template: {spec: {}}}`)
		isMachine := refused(c.Create(ctx, machine, client.DryRunAll))
		return isMachine && refused(c.Create(ctx, set, client.DryRunAll))
	})
	return c, namespace
}

// refused returns whether a policy has refused a request.
func refused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'machine-controller-machine")
}

// newMachine returns a Machine with a spec.
func newMachine(t *testing.T, namespace, spec string) *machinev1beta1.Machine {
	t.Helper()
	machine := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "m-"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &machine.Spec); err != nil {
		t.Fatal(err)
	}
	return machine
}

// newSet returns a MachineSet with a spec.
func newSet(t *testing.T, namespace, spec string) *machinev1beta1.MachineSet {
	t.Helper()
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "set-"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &set.Spec); err != nil {
		t.Fatal(err)
	}
	return set
}

// deleting creates a Machine with some hooks, and deletes it. A finalizer keeps it.
func deleting(t *testing.T, c client.Client, namespace, hooks string) *machinev1beta1.Machine {
	t.Helper()
	machine := newMachine(t, namespace, `{`+readyToRun+`, lifecycleHooks: `+hooks+`}`)
	machine.Finalizers = []string{finalizer}
	if err := c.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { release(c, machine) })
	if err := c.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	return machine
}

// release lets a Machine go.
func release(c client.Client, machine *machinev1beta1.Machine) {
	_ = c.Patch(context.Background(), machine,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
}

// patch patches an object as an editor would, in YAML, and changes nothing.
func patch(t *testing.T, c client.Client, object client.Object, text string, options ...client.PatchOption) error {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	options = append(options, client.DryRunAll)
	return c.Patch(t.Context(), object.DeepCopyObject().(client.Object),
		client.RawPatch("application/merge-patch+json", data), options...)
}

// TestA5AdmissionOfHooks is scenario A5: the hooks of a terminating machine can be removed, but not added or changed.
func TestA5AdmissionOfHooks(t *testing.T) {
	t.Parallel()
	c, namespace := admission(t)
	for list, name := range map[string]string{"preDrain": "pre-drain", "preTerminate": "pre-terminate"} {
		machine := deleting(t, c, namespace,
			`{`+list+`: [{name: MigrateApp, owner: app-op}, {name: Backup, owner: app-op}]}`)
		hooks := func(text string) string { return `{spec: {lifecycleHooks: {` + list + `: ` + text + `}}}` }
		for change, text := range map[string]string{
			"{Name:Late Owner:app-op}":      `[{name: MigrateApp, owner: app-op}, {name: Backup, owner: app-op}, {name: Late, owner: app-op}]`,
			"{Name:MigrateApp Owner:other}": `[{name: MigrateApp, owner: other}, {name: Backup, owner: app-op}]`,
			"{Name:Renamed Owner:app-op}":   `[{name: Renamed, owner: app-op}, {name: Backup, owner: app-op}]`,
		} {
			err := patch(t, c, machine, hooks(text))
			want := "spec.lifecycleHooks." + list + ": Forbidden: " + name +
				" hooks are immutable when machine is marked for deletion: the following hooks are new or changed: [" +
				change + "]"
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s to %s: %v, want %s", list, text, err, want)
			}
		}
		for what, text := range map[string]string{
			"one hook is removed":      hooks(`[{name: Backup, owner: app-op}]`),
			"they change places":       hooks(`[{name: Backup, owner: app-op}, {name: MigrateApp, owner: app-op}]`),
			"all hooks are removed":    hooks(`null`),
			"the finalizer is removed": `{metadata: {finalizers: null}}`,
			"another thing is edited":  `{metadata: {labels: {example.com/a: b}}, spec: {providerID: "x://y"}}`,
			"its values are edited":    `{spec: {providerSpec: {value: {spec: {providerID: x}}}}}`,
		} {
			if err := patch(t, c, machine, text); err != nil {
				t.Errorf("%s, %s: %v", list, what, err)
			}
		}
	}
	for _, lost := range []string{`null`, `{value: null}`, `{value: {kind: null}}`, `{value: {kind: KwokMachine}}`,
		`{value: {apiVersion: example.com/v1}}`} {
		err := patch(t, c, deleting(t, c, namespace, `{}`), `{spec: {providerSpec: `+lost+`}}`)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "make another Machine") {
			t.Errorf("a machine whose infrastructure would be lost by %s: %v", lost, err)
		}
	}
	late := patch(t, c, deleting(t, c, namespace, `{preDrain: [{name: Same, owner: app-op}]}`),
		`{spec: {lifecycleHooks: {preTerminate: [{name: Same, owner: app-op}]}}}`)
	if !apierrors.IsForbidden(late) {
		t.Errorf("adding a hook of the other list: got error %v, want Forbidden", late)
	}
}

// TestA5SchemaOfHooks is the second part of A5, which the definition does.
func TestA5SchemaOfHooks(t *testing.T) {
	t.Parallel()
	c, namespace := admission(t)
	for hooks, want := range map[string]string{
		`[{name: Twice, owner: abc}, {name: Twice, owner: def}]`: `Duplicate value`,
		`[{name: ab, owner: abc}]`:                               `should be at least 3 chars long`,
		`[{name: Lonely}]`:                                       `lifecycleHooks.preDrain[0].owner`,
		`[{name: Short, owner: me}]`:                             `should be at least 3 chars long`,
		`[{name: "with space", owner: abc}]`:                     `should match`,
		`[{name: example.com/Migrate, owner: "any text"}]`:       ``,
	} {
		machine := newMachine(t, namespace, `{`+readyToRun+`, lifecycleHooks: {preDrain: `+hooks+`}}`)
		err := c.Create(t.Context(), machine, client.DryRunAll)
		if (want == "") != (err == nil) ||
			err != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", hooks, err, want)
		}
	}
	both := newMachine(t, namespace, `{`+readyToRun+
		`, lifecycleHooks: {preDrain: [{name: Same, owner: abc}], preTerminate: [{name: Same, owner: abc}]}}`)
	if err := c.Create(t.Context(), both, client.DryRunAll); err != nil {
		t.Errorf("one name in both lists: %v", err)
	}
}

// TestAdmissionOfMachines: the hooks of a machine can be changed until it is deleted, and a new machine requires
// infrastructure.
func TestAdmissionOfMachines(t *testing.T) {
	t.Parallel()
	c, namespace := admission(t)
	machine := newMachine(t, namespace, `{`+readyToRun+`, lifecycleHooks: {preDrain: [{name: Migrate, owner: abc}]}}`)
	if err := c.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{spec: {lifecycleHooks: {preDrain: [{name: Migrate, owner: other}, {name: More, owner: abc}]}}}`: ``,
		`{spec: {providerSpec: {value: {spec: {providerID: x}}}}}`:                                        ``,
		`{spec: {providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v9}}}}`:                   ``,
		`{spec: {providerSpec: {value: {kind: Other}}}}`:                                                  `make another Machine`,
		`{spec: {providerSpec: {value: {apiVersion: example.com/v1}}}}`:                                   `make another Machine`,
		`{spec: {providerSpec: {value: {kind: null}}}}`:                                                   `name the apiVersion and the kind`,
		`{spec: {providerSpec: {value: {kind: ""}}}}`:                                                     `name the apiVersion and the kind`,
		`{spec: {providerSpec: null}}`:                                                                    `name the apiVersion and the kind`,
	} {
		if err := patch(t, c, machine, text); (want == "") != (err == nil) ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, spec := range []string{`{}`, `{providerSpec: {}}`, `{providerSpec: {value: {apiVersion: v1}}}`,
		`{providerSpec: {value: {kind: 5, apiVersion: v1}}}`} {
		if err := c.Create(t.Context(), newMachine(t, namespace, spec), client.DryRunAll); !refused(err) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	machine.Status.Phase = new(string)
	if err := c.Status().Update(t.Context(), machine); err != nil {
		t.Error("status:", err)
	}
}

// TestAdmissionOfMachineSets refuses sets that would make machines for ever, or none.
func TestAdmissionOfMachineSets(t *testing.T) {
	t.Parallel()
	c, namespace := admission(t)
	template := func(labels string) string {
		return `, template: {metadata: {labels: ` + labels + `}, spec: {` + readyToRun + `}}}`
	}
	for spec, want := range map[string]string{
		`{selector: {matchLabels: {set: a}}` +
			template(`{set: a, more: b}`): ``,
		`{selector: {matchLabels: {set: a}}` + template(`{set: b}`): `does not select machines of this template`,
		`{selector: {matchLabels: {set: ""}}` +
			template(`{more: b}`): `does not select machines of this template`,
		`{selector: {matchLabels: {set: a}}` + template(`{}`): `does not select machines of this template`,
		`{selector: {}` + template(
			`{set: a}`,
		): `an empty selector`,
		`{selector: {matchExpressions: [{key: set, operator: In, values: [a, b]}]}` + template(`{set: b}`): ``,
		`{selector: {matchExpressions: [{key: set, operator: In, values: [a, b]}]}` +
			template(`{}`): `does not select machines of this template`,
		`{selector: {matchExpressions: [{key: set, operator: NotIn, values: [a]}]}` + template(`{set: b}`): ``,
		`{selector: {matchExpressions: [{key: set, operator: NotIn, values: [b]}]}` +
			template(`{set: b}`): `does not select machines of this template`,
		`{selector: {matchExpressions: [{key: set, operator: Exists}]}` + template(`{set: b}`): ``,
		`{selector: {matchExpressions: [{key: set, operator: Exists}]}` +
			template(`{}`): `does not select machines of this template`,
		`{selector: {matchExpressions: [{key: old, operator: DoesNotExist}]}` + template(`{set: b}`): ``,
		`{selector: {matchExpressions: [{key: old, operator: DoesNotExist}]}` +
			template(`{old: b}`): `does not select machines of this template`,
		`{selector: {matchExpressions: [{key: set, operator: Like, values: [a]}]}` +
			template(`{set: a}`): `does not select machines of this template`,
		`{selector: {matchLabels: {set: a}}, template: {metadata: {labels: {set: a}}, spec: {}}}`:                                 `spec.template.spec.providerSpec.value: name the apiVersion`,
		`{selector: {matchLabels: {set: a}}, template: {metadata: {labels: {set: a}}, spec: {providerSpec: {value: {kind: K}}}}}`: `spec.template.spec.providerSpec.value: name the apiVersion`,
	} {
		err := c.Create(t.Context(), newSet(t, namespace, spec), client.DryRunAll)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	set := newSet(t, namespace, `{selector: {matchLabels: {set: a}}`+template(`{set: a}`))
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{spec: {replicas: 0, selector: {matchLabels: {set: b}}, template: {metadata: {labels: {set: b}}}}}`: `selector is immutable`,
		`{spec: {replicas: 0, template: {metadata: {labels: {set: b}}}}}`:                                    `does not select machines of this template`,
		`{spec: {replicas: 0, template: {spec: {lifecycleHooks: {preDrain: [{name: New, owner: abc}]}}}}}`:   ``,
	} {
		if err := patch(t, c, set, text); (want == "") != (err == nil) ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestStoredObjectsCanBeEditedAndDeleted: objects that the policies would refuse, created before the policies.
func TestStoredObjectsCanBeEditedAndDeleted(t *testing.T) {
	t.Parallel()
	c, namespace := admission(t)
	exempt(t, namespace)
	machine, set := newMachine(t, namespace, `{}`),
		newSet(t, namespace, `{selector: {matchLabels: {a: b}}, template: {spec: {}}}`)
	machine.Finalizers, set.Finalizers = []string{finalizer}, []string{"example.com/held"}
	for _, object := range []client.Object{machine, set} {
		sandboxtest.Eventually(t, "it is stored", func(ctx context.Context) bool {
			return c.Create(ctx, object) == nil
		})
	}
	guard(t, namespace)
	sandboxtest.Eventually(t, "the policies are in force again", func(ctx context.Context) bool {
		return refused(c.Create(ctx, newMachine(t, namespace, `{}`), client.DryRunAll)) &&
			refused(c.Create(ctx, newSet(t, namespace, `{selector: {}, template: {spec: {}}}`), client.DryRunAll))
	})
	try := func(when string) {
		for _, object := range []client.Object{machine, set} {
			for _, text := range []string{`{metadata: {labels: {a: b}}}`, `{metadata: {finalizers: null}}`} {
				if err := patch(t, c, object, text); err != nil {
					t.Errorf("%s: %T, %s: %v", when, object, text, err)
				}
			}
		}
		if err := patch(t, c, set, `{spec: {replicas: 3}}`); err != nil {
			t.Errorf("%s: a set is scaled: %v", when, err)
		}
	}
	try("stored")
	for _, object := range []client.Object{machine, set} {
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	try("being deleted")
	for _, object := range []client.Object{machine, set} {
		if err := c.Patch(t.Context(), object,
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Error(err)
		}
	}
}

// exempt has the policies leave out a namespace, and guard has them cover all again.
func exempt(t *testing.T, namespace string) { setScope(t, "NotIn", namespace) }

func guard(t *testing.T, namespace string) { setScope(t, "", namespace) }

// setScope sets which namespaces the policies cover.
func setScope(t *testing.T, operator metav1.LabelSelectorOperator, namespace string) {
	t.Helper()
	bindings := shared.Kubernetes(t).AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	for _, name := range []string{"machine-controller-machines", "machine-controller-machinesets"} {
		binding, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		binding.Spec.MatchResources = nil
		if operator != "" {
			selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "kubernetes.io/metadata.name", Operator: operator, Values: []string{namespace},
			}}}
			binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: selector}
		}
		if _, err := bindings.Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
