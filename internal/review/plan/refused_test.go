package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/refusals"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestRefusedObjects compares a release with one in which each Service has a port that no server takes.
func TestRefusedObjects(t *testing.T) {
	service := func(name, annotation string, ports ...string) string {
		return fmt.Sprintf("---\n{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: shop, annotations: "+
			"{%s}}, spec: {ports: [%s]}}\n", name, annotation, strings.Join(ports, ", "))
	}
	const good, bad, worse = "{port: 80}", "{port: 99999, targetPort: 1}", "{name: b, port: 0, targetPort: 1}"
	const createOnly, deleted = `release.openshift.io/create-only: "true"`, `release.openshift.io/delete: "true"`
	old := service("changed", "", good) + service("unchanged", "", bad) + service("bad-before", "", bad) +
		service("kept", createOnly, good) +
		service("revived", deleted, good) + service("deleted", "", good)
	next := service("changed", "", bad) + service("unchanged", "", bad) + service("bad-before", "a: b", bad) +
		service("kept", createOnly, bad) +
		service("revived", "", bad) + service("deleted", deleted, bad) +
		service("new", "", "{name: a, port: 99999, targetPort: 1}", worse) + service("good", "", good)
	read := func(text string) (*payload.Payload, []payload.Problem) {
		release, problems, err := payload.Parse(t.Context(), fstest.MapFS{"0000_10_shop.yaml": {Data: []byte(text)}},
			payload.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return release, problems
	}
	from, _ := read(old)
	p, problems := read(next)
	var got strings.Builder
	for _, warning := range plan.Compare(from, p, refusals.Find(t.Context(), p.Manifests, problems)).Warnings {
		if warning.Reason == plan.Refused {
			fmt.Fprintf(&got, "%s: %s\n", warning.ID, warning.Message)
		}
	}
	const port = "Invalid value: %d: must be between 1 and 65535, inclusive"
	build := func(name string) string {
		return "Service shop/" + name + ": the API server refuses it: spec.ports[0].port: " + fmt.Sprintf(port, 99999)
	}
	want := build("changed") + "\n" + build("bad-before") + "\n" + build("revived") + "\n" + build("new") +
		", spec.ports[1].port: " + fmt.Sprintf(port, 0) + "\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}
