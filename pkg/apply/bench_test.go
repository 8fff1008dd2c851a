package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// BenchmarkInstall applies a thousand objects that are not there, and then the same once
// more. Beside it stands what somebody would write by hand: the same requests in a loop,
// without order, waiting, telling or a record.
func BenchmarkInstall(b *testing.B) {
	const objects = 1000
	b.Run("runlevel", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			release := manyObjects(b, b.Name(), objects)
			b.StartTimer()
			if did := run(b, b.Context(), release, apply.Options{Mode: graph.Install}); did.Err != nil {
				b.Fatal(did.Err)
			}
		}
	})
	for _, atOnce := range []int{1, 48} {
		b.Run(fmt.Sprintf("loop, %d at once", atOnce), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				release := manyObjects(b, b.Name(), objects)
				b.StartTimer()
				if err := applyInLoop(b.Context(), test.Sandbox(b).Config, release, atOnce); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// manyObjects is a payload of small ConfigMaps in ten components, in a namespace that
// nobody has used.
func manyObjects(b *testing.B, name string, count int) *payload.Payload {
	b.Helper()
	namespace := test.Namespace(b)
	folder := fstest.MapFS{}
	for i := range count {
		folder[fmt.Sprintf("0000_10_component-%d_%04d.yaml", i%10, i)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: object-%04d, namespace: %s}, data: {key: %s}}", i, namespace, strings.Repeat("x", 200))}
	}
	release, _, err := payload.Load(b.Context(), folder, payload.Options{Name: namespace})
	if err != nil {
		b.Fatal(err)
	}
	return release
}

// applyInLoop is the least that applies all objects.
func applyInLoop(ctx context.Context, config *rest.Config, release *payload.Payload, atOnce int) error {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, manifest := range release.Manifests {
		group.Go(func() error {
			var object *unstructured.Unstructured = manifest.Object()
			body, err := json.Marshal(object.Object)
			if err != nil {
				return err
			}
			_, err = maps.Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "loop", Force: new(true)})
			return err
		})
	}
	return group.Wait()
}
