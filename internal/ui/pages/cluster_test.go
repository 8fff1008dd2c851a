package pages_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

// The status of a ClusterVersion, in which a message has hostile lines.
const versionStatus = `{"status":{
"desired":{"version":"4.21.3","image":"registry.example/shop@sha256:1"},"observedGeneration":1,"versionHash":"x",
"availableUpdates":[{"version":"4.21.5","image":"registry.example/shop@sha256:5"}],
"conditionalUpdates":[{"release":{"version":"4.22.0","image":"registry.example/shop@sha256:6"},
 "risks":[{"name":"SlowDisks","url":"https://example.com","message":"slow","matchingRules":[{"type":"Always"}]}],
 "conditions":[{"type":"Recommended","status":"False","reason":"SlowDisks","message":"Disks are slow.\nBuy new ones.",
 "lastTransitionTime":"2026-01-02T03:05:00Z"}]}],
"history":[{"state":"Completed","version":"4.21.3","image":"registry.example/shop@sha256:1",
 "startedTime":"2026-01-02T03:00:00Z","completionTime":"2026-01-02T03:05:00Z","verified":true}],
"conditions":[{"type":"Available","status":"True","lastTransitionTime":"2026-01-02T03:05:00Z"},
 {"type":"Failing","status":"True","reason":"Broken","message":"<script>alert(1)</script>\nsecond\u202e line",
 "lastTransitionTime":"2026-01-02T03:05:00Z"}]}}`

// operatorStatus returns the status of a ClusterOperator, degraded or not.
func operatorStatus(degraded string) string {
	return fmt.Sprintf(`{"status":{"versions":[{"name":"operator","version":"4.21.3"}],"conditions":[
{"type":"Available","status":"True","lastTransitionTime":"2026-01-02T03:05:00Z"},
{"type":"Degraded","status":%q,"reason":"Members","message":"1 of 3","lastTransitionTime":"2026-01-02T03:05:00Z"}]}}`,
		degraded)
}

// applyConfig applies an object of OpenShift's configuration with a status, once its kind is served.
func applyConfig(t *testing.T, c *cluster.Cluster, kind, name, spec, status string) {
	t.Helper()
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		c.Refresh()
		resource, err := c.FindKind(ctx, schema.GroupKind{Group: "config.openshift.io", Kind: kind})
		if err != nil {
			return err
		}
		object := sandboxtest.ParseObject(t, fmt.Sprintf(
			"{apiVersion: config.openshift.io/v1, kind: %s, metadata: {name: %s}, spec: %s}", kind, name, spec))
		if _, err = c.Apply(ctx, resource, object, cluster.Force); err != nil {
			return err
		}
		_, err = c.In(resource, "").Patch(ctx, name, types.MergePatchType, []byte(status), metav1.PatchOptions{},
			"status")
		return err
	})
}

func TestTheClusterPageShowsTheClusterVersionAndAllOperators(t *testing.T) {
	r := newRelease(t)
	opened := r.site()
	page := render(t, opened, "/cluster")
	contains(t, page, "The cluster has no ClusterVersion", "The cluster has no ClusterOperators")
	lacks(t, page, ">ClusterVersion</a>")
	c := test.Connect(t)
	for _, name := range []string{"clusterversions", "clusteroperators"} {
		definition, err := os.ReadFile("../../../install/0000_00_runlevel_01_" + name + ".crd.yaml")
		if err != nil {
			t.Fatal(err)
		}
		sandboxtest.Apply(t, c, string(definition))
	}
	applyConfig(t, c, "ClusterVersion", "version",
		"{clusterID: 11111111-2222-4333-8444-555555555555, channel: stable-4.21}", versionStatus)
	applyConfig(t, c, "ClusterOperator", "dns", "{}", operatorStatus("False"))
	applyConfig(t, c, "ClusterOperator", "etcd", "{}", operatorStatus("True"))

	site := r.site()
	page = render(t, site, "/cluster")
	contains(t, page, ">ClusterVersion</a>", "Broken", "<br>")
	lacks(t, page, "<script>alert", "\u202e")
	contains(t, section(page, "version"), "Version 4.21.3", "Channel stable-4.21", "registry.example/shop@sha256:1")
	contains(t, section(page, "conditions"), "Failing=True", `<script>alert(1)</script> second\u202e line`)
	contains(t, section(page, "updates"), "4.21.5 yes", "4.22.0 no SlowDisks: Disks are slow. Buy new ones.")
	contains(t, section(page, "history"), "4.21.3 Completed", "5m", "yes")
	contains(t, section(page, "operators"), "dns 4.21.3 Available=True Degraded=False",
		"etcd 4.21.3 Available=True Degraded=True Degraded, for", "Members: 1 of 3")
	if strings.Index(page, "operator-etcd") > strings.Index(page, "operator-dns") {
		t.Error("a healthy ClusterOperator comes first:", page)
	}
	checkOutline(t, page)
	contains(t, section(render(t, site, "/releases/"+r.namespace+"/default"), "version"), "Version 4.21.3",
		"Failing=True", "Available updates: 4.21.5", "not recommended: 4.22.0 (SlowDisks)")
	sandboxtest.Eventually(t, "the page of before has the ClusterVersion", func(context.Context) bool {
		return section(render(t, opened, "/cluster"), "conditions") != ""
	})

	site.Allow = func(_ context.Context, right authorizationv1.ResourceAttributes) error {
		if right.Resource == "clusterversions" {
			return fmt.Errorf("get clusterversions: %w", pages.ErrForbidden)
		}
		return nil
	}
	if _, err := site.Page(t.Context(), &url.URL{Path: "/cluster"}); !errors.Is(err, pages.ErrForbidden) {
		t.Error("without the right to get the ClusterVersion:", err)
	}
	page = render(t, site, "/releases/"+r.namespace+"/default")
	contains(t, section(page, "version"), "get clusterversions: not allowed")
	lacks(t, section(page, "unknown"), "get clusterversions") // it would make the state of the release unknown
	lacks(t, page, "Failing=True", "1 of 3")
}
