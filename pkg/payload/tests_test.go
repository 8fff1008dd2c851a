package payload_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/payload"
)

// testRelease reads manifests of one file.
func testRelease(t *testing.T, filter payload.Filter, text string) (*payload.Payload, []payload.Problem) {
	t.Helper()
	return parse(t, files(t, map[string]string{"0000_10_shop_01.yaml": text}), payload.Options{Filter: filter})
}

// namesOf returns the names of the objects of manifests.
func namesOf(manifests []*payload.Manifest) string {
	var names []string
	for _, m := range manifests {
		names = append(names, m.ID().Name)
	}
	return strings.Join(names, " ")
}

// annotated returns a manifest of a kind with annotations.
func annotated(apiVersion, kind, name string, annotations ...string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n  namespace: here\n  annotations: {%s}\n---\n",
		apiVersion, kind, name, strings.Join(annotations, ", "))
}

func TestTestsAreNotAmongTheManifests(t *testing.T) {
	const isTest = `runlevel.dev/test: "true"`
	text := annotated("batch/v1", "Job", "plain") +
		annotated("batch/v1", "Job", "last", isTest, `helm.sh/hook-weight: "7"`) +
		annotated("batch/v1", "Job", "second", isTest) +
		annotated("v1", "Pod", "third", `helm.sh/hook: "post-upgrade, test"`) +
		annotated("v1", "Pod", "fourth", `helm.sh/hook: test-success`) +
		annotated("batch/v1", "Job", "first", isTest, `helm.sh/hook-weight: "-1"`) +
		annotated("batch/v1", "Job", "other-value", `runlevel.dev/test: "yes"`) +
		annotated("batch/v1", "Job", "other-hook", `helm.sh/hook: test-failure,post-install`) +
		annotated("v1", "ConfigMap", "other-kind", isTest) +
		annotated("batch/v1", "Job", "tombstone", isTest, `release.openshift.io/delete: "true"`) +
		annotated("batch/v1", "Job", "excluded", isTest, `exclude.release.openshift.io/small: "true"`)
	release, _ := testRelease(t, payload.Filter{Exclude: "small"}, text)
	if diff := cmp.Diff("plain other-value other-hook other-kind tombstone", namesOf(release.Manifests)); diff != "" {
		t.Errorf("manifests:\n%s", diff)
	}
	if diff := cmp.Diff("first second third fourth last", namesOf(release.Tests)); diff != "" {
		t.Errorf("tests:\n%s", diff)
	}
	if len(release.Excluded) != 1 || len(release.All()) != 11 {
		t.Errorf("%d are excluded and %d are all, want 1 and 11", len(release.Excluded), len(release.All()))
	}
}

func TestAChangedTestIsAnotherRelease(t *testing.T) {
	plain := annotated("batch/v1", "Job", "plain")
	one, _ := testRelease(t, payload.Filter{}, plain+annotated("v1", "Pod", "a", `runlevel.dev/test: "true"`))
	other, _ := testRelease(t, payload.Filter{}, plain+annotated("v1", "Pod", "b", `runlevel.dev/test: "true"`))
	if one.Hash == other.Hash {
		t.Error("both have the same hash: an apply would not keep the files of the other one as a version")
	}
}

func TestATestHasItsObjectAlone(t *testing.T) {
	text := annotated("batch/v1", "Job", "same") + annotated("batch/v1", "Job", "same", `runlevel.dev/test: "true"`)
	_, problems := testRelease(t, payload.Filter{}, text)
	if len(problems) != 1 || problems[0].Cause != payload.Duplicate {
		t.Errorf("%v, want one problem with a duplicate", problems)
	}
}
