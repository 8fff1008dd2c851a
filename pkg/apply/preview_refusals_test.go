package apply_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/review/refusals"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// knownRefusals returns the refusals that the command line finds without a cluster.
func knownRefusals(t *testing.T, release *payload.Payload) map[object.StepID][]fields.Refusal {
	t.Helper()
	known := map[object.StepID][]fields.Refusal{}
	for m, found := range refusals.Find(t.Context(), release.Manifests, nil) {
		known[object.StepOf(m)] = found
	}
	return known
}

// If a dry run is not possible before the apply, the preview still reports known refusals, and the apply fails with
// them.
func TestPreviewReportsKnownRefusals(t *testing.T) {
	const (
		unasked = " (by Kubernetes' own validation, as the cluster can't be asked yet)\n"
		isNew   = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: app, namespace: NS}}\n---\n"
		pod     = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {serviceAccountName: app, " +
			"containers: [{name: web}, {name: proxy, image: registry.example/proxy, imagePullPolicy: Sometimes}]}}"
		badKey = "{apiVersion: v1, kind: ConfigMap, metadata: {name: it, namespace: NS}, data: {no key: red}}"
	)
	runAll(t, map[string]previewCase{
		"a pod with a new service account": {
			files: one(isNew + pod),
			want: "created ServiceAccount NS/app\nfailed Pod NS/web: UpdatePayloadResourceInvalid: " +
				"spec.containers[0].image: Required value; " +
				"spec.containers[1].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", " +
				"\"IfNotPresent\", \"Never\"" + unasked,
		},
		"in place of a terminating object": {
			prepare: func(t *testing.T, namespace string) {
				create("bob", strings.Replace(red, "name: it", "name: it, finalizers: [shop.example.com/hold]", 1))(t,
					namespace)
				must(t, test.Client(t).CoreV1().ConfigMaps(namespace).Delete(t.Context(), "it", metav1.DeleteOptions{}))
				t.Cleanup(func() {
					_, err := test.Client(t).CoreV1().ConfigMaps(namespace).Patch(context.Background(), "it",
						types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
					must(t, err)
				})
			},
			files: one(badKey), done: "nothing",
			want: "failed ConfigMap NS/it: UpdatePayloadResourceInvalid: data[no key]: Invalid value: \"no key\": a " +
				"valid config key must consist of alphanumeric characters, '-', '_' or '.' " +
				"(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')" +
				unasked,
		},
	})
}

// If the server accepts an object, the refusals that were found without the server are ignored: it may be newer.
func TestPreviewPrefersTheAnswerOfTheServer(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	release := load(t, namespace, namespace, space+one(red)+strings.Replace(one(inNew(red)), "0000_10", "0000_20", 1))
	known := map[object.StepID][]fields.Refusal{}
	for _, m := range release.Manifests {
		known[object.StepOf(m)] = []fields.Refusal{{Message: "data: Forbidden: by an older version"}}
	}
	saw := preview(t, t.Context(), test.Sandbox(t).Config, release, apply.Options{
		Options: object.Options{Refusals: known},
	})
	want := "created Namespace NS-new\ncreated ConfigMap NS/it\ncreated ConfigMap NS-new/it: it needs Namespace " +
		"NS-new, which is new, too: it was tried in namespace kube-public\n"
	if diff := cmp.Diff(want, saw.previewed(namespace)); diff != "" || saw.Err != nil {
		t.Error(saw.Err, diff)
	}
}
