package dependents_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/dependents"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// remaining are the objects that are left in a container when others are deleted.
func remaining(t *testing.T, c *cluster.Cluster, container objectmeta.LiveMetadata,
	deleted ...objectmeta.LiveMetadata) string {
	t.Helper()
	found, err := dependents.Remaining(t.Context(), c, []objectmeta.LiveMetadata{container}, append(deleted, container))
	if err != nil {
		t.Fatal(err)
	}
	if found[container.UID].Err != nil {
		t.Fatal(found[container.UID].Err)
	}
	var texts []string
	for _, id := range found[container.UID].Objects {
		texts = append(texts, id.String())
	}
	return strings.ReplaceAll(strings.Join(texts, ", "), container.ID.Name, "NS")
}

func TestRemainingInANamespace(t *testing.T) {
	t.Parallel()
	c, namespace := test.Connect(t), test.Namespace(t)
	home := headOf(t, c, kinds.ID{Kind: "Namespace", Name: namespace})
	for _, id := range []kinds.ID{{Kind: "ServiceAccount", Namespace: namespace, Name: "default"},
		{Kind: "ConfigMap", Namespace: namespace, Name: "kube-root-ca.crt"}} {
		sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error { _, err := c.Get(ctx, id); return err })
	}
	if rest := remaining(t, c, home); rest != "" {
		t.Errorf("a new Namespace has %s", rest)
	}
	sandboxtest.Apply(t, c, deployment(namespace))
	web := headOf(t, c, kinds.ID{Group: "apps", Kind: "Deployment", Namespace: namespace, Name: "web"})
	sandboxtest.EventuallySucceeds(t, func(context.Context) error {
		if count := countOf(t, c, web).Objects; count != 4 {
			return fmt.Errorf("%d objects", count)
		}
		return nil
	})
	mine := own(t, c, "ConfigMap", namespace, "mine")
	theirs := own(t, c, "ConfigMap", namespace, "theirs")
	own(t, c, "Secret", namespace, "of-mine", mine)
	own(t, c, "Secret", namespace, "of-both", mine, theirs)
	own(t, c, "ServiceAccount", namespace, "unowned")
	want := "ConfigMap NS/theirs, Secret NS/of-both, ServiceAccount NS/unowned"
	if diff := cmp.Diff(want, remaining(t, c, home, web, mine)); diff != "" {
		t.Error(diff)
	}
	if existing := remaining(t, c, home, mine); !strings.Contains(existing, "Deployment NS/web") ||
		!strings.Contains(existing, "Pod NS/web") {
		t.Errorf("with the Deployment there remains only %s", existing)
	}
}

func TestRemainingOfADefinition(t *testing.T) {
	t.Parallel()
	c, namespace := test.Connect(t), test.Namespace(t)
	sandboxtest.Apply(t, c, strings.ReplaceAll(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Ship, plural: ships}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]`, "NS", namespace))
	ship := func(name string) kinds.ID {
		return kinds.ID{Group: namespace + ".example.com", Kind: "Ship", Namespace: namespace, Name: name}
	}
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		c.Refresh()
		_, err := c.FindKind(ctx, ship("").GroupKind())
		return err
	})
	for _, name := range []string{"mine", "theirs"} {
		sandboxtest.Apply(t, c, fmt.Sprintf(
			`{apiVersion: %s.example.com/v1, kind: Ship, metadata: {name: %s, namespace: %[1]s}}`, namespace, name,
		))
	}
	definition := headOf(t, c, kinds.NewID(kinds.CustomResourceDefinition, "", "ships."+namespace+".example.com"))
	t.Cleanup(func() {
		_ = c.Delete(context.Background(), definition.Resource, "", definition.ID.Name, definition.UID)
	})
	found, err := dependents.Remaining(t.Context(), c, []objectmeta.LiveMetadata{definition},
		[]objectmeta.LiveMetadata{headOf(t, c, ship("mine"))})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]kinds.ID{ship("theirs")}, found[definition.UID].Objects); diff != "" {
		t.Error(diff)
	}
}
