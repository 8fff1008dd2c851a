package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

// operatorAct is the second act: an operator takes over the release, updates it, and repairs it.
type operatorAct struct {
	*demo
	registry *imageregistry.Registry
}

func (d *demo) playOperator(ctx context.Context) error {
	return d.withPods(ctx, "runlevel-operator", "runlevel-system", func(string) error {
		act := &operatorAct{demo: d, registry: imageregistry.Start()}
		defer act.registry.Close()
		return play(ctx, act.install, act.update, act.status, act.repair)
	})
}

// status prints the status of the release. The exit code is 1 while a Deployment is still being rolled out.
func (a *operatorAct) status(ctx context.Context) error {
	err := a.runlevel(ctx, "status")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return context.Cause(ctx)
	}
	return err
}

// install installs the operator with the version that was applied before.
func (a *operatorAct) install(ctx context.Context) error {
	image, err := a.push(ctx, "1.2.0")
	if err != nil {
		return err
	}
	if err := a.runlevel(ctx, "install", "--release", image, "--insecure"); err != nil {
		return err
	}
	return a.awaitVersion(ctx, "1.2.0")
}

// update asks for another version, as oc adm upgrade does.
func (a *operatorAct) update(ctx context.Context) error {
	image, err := a.push(ctx, "1.2.1")
	if err != nil {
		return err
	}
	title("oc adm upgrade --to-image " + image + " --allow-explicit-upgrade")
	patch := fmt.Appendf(nil, `{"spec": {"desiredUpdate": {"image": %q}}}`, image)
	if _, err := a.resource("config.openshift.io", "v1", "clusterversions", "").Patch(ctx, "version",
		types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	return a.awaitVersion(ctx, "1.2.1")
}

// repair deletes an object of the release, and waits until the operator has created it again.
func (a *operatorAct) repair(ctx context.Context) error {
	before, err := a.client.CoreV1().Services(namespace).Get(ctx, "hello-web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	title("an administrator deletes Service hello/hello-web")
	began := time.Now()
	if err := a.deleteService(ctx); err != nil {
		return err
	}
	_, err = objectwatch.Await(ctx, a.resource("", "v1", "services", namespace), "hello-web",
		func(live *unstructured.Unstructured) bool {
			return live != nil && live.GetUID() != before.UID
		})
	if err == nil {
		fmt.Printf("repaired after %s\n", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// awaitVersion prints the progress of the ClusterVersion until a version is complete.
func (a *operatorAct) awaitVersion(ctx context.Context, version string) error {
	last := ""
	_, err := objectwatch.Await(ctx, a.resource("config.openshift.io", "v1", "clusterversions", ""), "version",
		func(live *unstructured.Unstructured) bool {
			message := progressOf(live)
			if message != last && message != "" {
				fmt.Printf("ClusterVersion: %s\n", message)
				last = message
			}
			return message == "Cluster version is "+version
		})
	return err
}

// progressOf returns the message of a ClusterVersion's condition Progressing.
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

// push pushes version 1.2.0 of the release to a registry, under another version, and returns its image by digest.
func (a *operatorAct) push(ctx context.Context, version string) (string, error) {
	files, hello := fstest.MapFS{}, os.DirFS(release+"1.2.0")
	err := fs.WalkDir(hello, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(hello, path)
		files[path] = &fstest.MapFile{Data: bytes.ReplaceAll(text, []byte("1.2.0"), []byte(version)), Mode: 0o644}
		return err
	})
	if err != nil {
		return "", err
	}
	image, err := a.registry.Push(ctx, "hello/release:"+version, files)
	return image.String(), err
}
