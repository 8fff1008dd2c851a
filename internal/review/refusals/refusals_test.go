package refusals_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/review/refusals"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestFindRefusals has a template with the release's own image, which is not known, a manifest without an image, a
// valid manifest, and a tombstone.
func TestFindRefusals(t *testing.T) {
	pod := func(name, image string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("{apiVersion: v1, kind: Pod, metadata: {name: " + name +
			", namespace: shop}, spec: {restartPolicy: Often, containers: [{name: web" + image + "}]}}")}
	}
	release, problems, err := payload.Parse(t.Context(), fstest.MapFS{
		payload.TemplatesFolder + "/0000_10_shop_10.yaml": pod("template", ", image: '{{.ReleaseImage}}'"),
		payload.ReleaseFolder + "/0000_10_shop_20.yaml":   pod("forgotten", ""),
		payload.ReleaseFolder + "/0000_10_shop_30.yaml": {
			Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: good, namespace: shop}}"),
		},
		payload.ReleaseFolder +
			"/0000_10_shop_40.yaml": {Data: []byte("{apiVersion: v1, kind: Service, metadata: {name: old, " +
			"namespace: shop, annotations: {release.openshift.io/delete: 'true'}}}")},
	}, payload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for m, refused := range refusals.Find(t.Context(), release.Manifests, problems) {
		got[m.ID().Name] = fields.RefusalMessages(refused)
	}
	const policy = `spec.restartPolicy: Unsupported value: "Often": supported values: "Always", "OnFailure", "Never"`
	want := map[string][]string{"template": {policy}, "forgotten": {"spec.containers[0].image: Required value", policy}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s%v", diff, problems)
	}
}
