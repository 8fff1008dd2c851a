package cli

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/examples"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
	"github.com/runlevel/runlevel/internal/session"
)

// operatorDemo is the second act of the demo, on the control plane of the first one.
type operatorDemo struct {
	demo
	registry *imageregistry.Registry
}

// operatorName is the program that the operator's Deployment runs.
const operatorName = "runlevel-operator"

// versionsResource is where releases are asked for.
var versionsResource = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusterversions"}

// withOperator tells the second act, if the operator's program is beside this one.
func (d *demo) withOperator(ctx context.Context) error {
	return d.withPods(ctx, operatorName, theOperator.Namespace, "the second act, with an operator", func(string) error {
		o := &operatorDemo{demo: *d, registry: imageregistry.Start()}
		defer o.registry.Close()
		return play(ctx, o.installOperator, o.updateByClusterVersion, o.showStatus, o.repairAgain)
	})
}

// installOperator installs the operator with the version that is applied already, which it takes over.
func (d *operatorDemo) installOperator(ctx context.Context) error {
	image, err := d.push(ctx, "1.2.0", "1.2.0")
	if err != nil {
		return err
	}
	d.title("runlevel install --release " + image)
	set := operatorSetup{cluster: d.cluster, streams: d.streams, format: asText}
	program := operatorProgram{image: image, release: image, argument: "--release-image=" + image, flags: map[string]any{"insecure-registry": true}}
	if err := set.install(ctx, program); err != nil {
		return err
	}
	if err := set.awaitOperator(ctx, time.Minute); err != nil {
		return err
	}
	return d.untilVersion(ctx, "1.2.0")
}

// updateByClusterVersion asks for another version, as oc adm upgrade does.
func (d *operatorDemo) updateByClusterVersion(ctx context.Context) error {
	image, err := d.push(ctx, "1.2.0", "1.2.1")
	if err != nil {
		return err
	}
	d.title("oc adm upgrade --to-image " + image + " --allow-explicit-upgrade")
	patch := fmt.Appendf(nil, `{"spec": {"desiredUpdate": {"image": %q}}}`, image)
	_, err = d.cluster.Objects.Resource(versionsResource).Patch(ctx, "version", apitypes.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return d.untilVersion(ctx, "1.2.1")
}

// showStatus shows how the release stands, as runlevel status does.
func (d *operatorDemo) showStatus(ctx context.Context) error {
	d.title("runlevel status")
	flags := &statusFlags{cluster: clusterFlags{namespace: session.DefaultNamespace}, format: asText}
	found, err := (&statusAsker{cluster: d.cluster, flags: flags}).ask(ctx)
	if err != nil {
		return err
	}
	return newStatusScreen(flags, d.streams).show(found)
}

// repairAgain breaks the release, and waits until the operator has repaired it.
func (d *operatorDemo) repairAgain(ctx context.Context) error {
	services := d.cluster.Client.CoreV1().Services(demoNamespace)
	before, err := services.Get(ctx, "hello-web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	last := d.drifts()[len(d.drifts())-1]
	d.title(last.title)
	began := time.Now()
	if err := last.do(ctx); err != nil {
		return err
	}
	resource := d.cluster.Objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).Namespace(demoNamespace)
	_, err = sandbox.Await(ctx, resource, "hello-web", func(seen *unstructured.Unstructured) bool {
		return seen != nil && seen.GetUID() != before.UID
	})
	if err == nil {
		fmt.Fprintf(d.streams.Out, "repaired after %s\n", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// untilVersion prints what the ClusterVersion says until a version is complete.
func (d *operatorDemo) untilVersion(ctx context.Context, version string) error {
	last := ""
	_, err := sandbox.Await(ctx, d.cluster.Objects.Resource(versionsResource), "version", func(seen *unstructured.Unstructured) bool {
		said := progressOf(seen)
		if said != last && said != "" {
			fmt.Fprintf(d.streams.Out, "ClusterVersion: %s\n", said)
			last = said
		}
		return said == "Cluster version is "+version
	})
	return err
}

// progressOf returns what a ClusterVersion says of its progress.
func progressOf(version *unstructured.Unstructured) string {
	if version == nil {
		return ""
	}
	conditions, _, _ := unstructured.NestedSlice(version.Object, "status", "conditions")
	for _, value := range conditions {
		if condition, _ := value.(map[string]any); condition["type"] == "Progressing" {
			message, _ := condition["message"].(string)
			return message
		}
	}
	return ""
}

// push puts the sample release into the demo's registry, as another version, and returns its image by digest.
func (d *operatorDemo) push(ctx context.Context, from, version string) (string, error) {
	files := fstest.MapFS{}
	hello := examples.Hello(from)
	err := fs.WalkDir(hello, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(hello, path)
		files[path] = &fstest.MapFile{Data: bytes.ReplaceAll(text, []byte(from), []byte(version)), Mode: 0o644}
		return err
	})
	if err != nil {
		return "", err
	}
	image, err := d.registry.Push(ctx, "hello/release:"+version, files)
	return image.String(), err
}
