package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/examples"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/payload"
)

func newDemo(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Install and update a sample release on a control plane of its own",
		Long: `Start a control plane on this machine, install the sample release examples/hello 1.0.0
on it, and update it to 1.1.0, which deletes a Deployment that a user holds by a
finalizer. The next minor update is refused until that is gone. Then the release is kept
in place while its objects are changed.

In the second act the operator does the same: it is installed on the cluster, the ClusterVersion
is edited, and the operator updates the release and repairs it. In the last one the machine controller
is applied, and a machine is deleted while a hook holds it; then a machine of a control plane, which
the etcd quorum guard holds until its member of etcd is replaced. Nothing is left behind but the cached
programs.`,
		Example: `  runlevel demo`,
		RunE: func(command *cobra.Command, _ []string) error {
			return demonstrate(command.Context(), streams)
		},
	}
}

// demonstrate starts a control plane, tells the story on it, and stops it.
func demonstrate(ctx context.Context, streams Streams) (err error) {
	fmt.Fprintln(streams.Err, "starting a control plane on this machine")
	s, err := sandbox.Start(ctx, sandbox.Options{Progress: streams.Err})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	fmt.Fprintf(streams.Err, "Kubernetes is ready after %s\n", s.Took.Ready.Round(100*time.Millisecond))
	c, err := cluster.Connect(s.Config)
	if err != nil {
		return err
	}
	d := demo{streams: streams, cluster: c, sandbox: s}
	return play(ctx, d.install, d.hold, d.update, d.isRefused, d.letGo, d.updateAgain, d.keepInPlace, d.withOperator, d.withMachines)
}

// play tells scenes one after the other.
func play(ctx context.Context, scenes ...func(context.Context) error) error {
	for _, scene := range scenes {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A demo is the story that is told, scene by scene.
type demo struct {
	streams Streams
	cluster *cluster.Cluster
	sandbox *sandbox.Sandbox
}

const (
	demoNamespace  = "hello"
	demoDeployment = "hello-cache"
	demoFinalizer  = "hello.example.com/hold"
)

func (d *demo) install(ctx context.Context) error { return d.apply(ctx, "1.0.0") }

// hold puts a finalizer on what the next version deletes, as a controller might.
func (d *demo) hold(ctx context.Context) error {
	d.title("an administrator holds Deployment hello/hello-cache by a finalizer")
	return d.patchFinalizers(ctx, `["`+demoFinalizer+`"]`)
}

func (d *demo) update(ctx context.Context) error { return d.apply(ctx, "1.1.0") }

// isRefused tries the next minor version while the delete is pending.
func (d *demo) isRefused(ctx context.Context) error {
	err := d.apply(ctx, "1.2.0")
	if err == nil {
		return errors.New("the update to 1.2.0 should have been refused, and was not")
	}
	fmt.Fprintf(d.streams.Out, "refused: %v\n", err)
	return context.Cause(ctx)
}

// letGo takes the finalizer away, and waits until the Deployment is gone.
func (d *demo) letGo(ctx context.Context) error {
	d.title("the finalizer is taken away")
	if err := d.patchFinalizers(ctx, "null"); err != nil {
		return err
	}
	records, err := record.List(ctx, d.cluster.Client, session.DefaultNamespace)
	if err != nil {
		return err
	}
	asked, err := askedOf(ctx, d.cluster, records...)
	if err != nil {
		return err
	}
	return follow(ctx, d.cluster, asked, d.streams.Out)
}

// updateAgain goes to the next minor version, and shows what the cluster has noted.
func (d *demo) updateAgain(ctx context.Context) error {
	if err := d.apply(ctx, "1.2.0"); err != nil {
		return err
	}
	d.title("what the cluster has noted")
	records, err := record.List(ctx, d.cluster.Client, session.DefaultNamespace)
	if err != nil {
		return err
	}
	for _, item := range records {
		if err := printHistory(d.streams.Out, item, d.cluster.Now()); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) title(text string) { fmt.Fprintf(d.streams.Out, "\n# %s\n", text) }

// apply applies a version of the sample release.
func (d *demo) apply(ctx context.Context, version string) error {
	source := "examples/hello/" + version
	d.title("runlevel apply " + source)
	return d.applyPayload(ctx, examples.Hello(version), source, "", func(*reporter, *session.Options) {})
}

// applyPayload applies a payload of this program, as runlevel apply does. The options may be changed before.
func (d *demo) applyPayload(ctx context.Context, files fs.FS, source, name string, change func(*reporter, *session.Options)) error {
	release, _, err := payload.Load(ctx, files, payload.Options{Name: name})
	if err != nil {
		return err
	}
	report := newReporter(d.streams, asText, false, d.cluster.Now)
	options := session.Options{Source: source, OnBegin: report.onBegin(ctx, d.cluster, release.Manifests)}
	options.Apply.Tell = report.event
	report.configure(&options.Apply)
	change(report, &options)
	return report.finishOnce(session.Run(ctx, d.cluster, release, options))
}

func (d *demo) patchFinalizers(ctx context.Context, finalizers string) error {
	patch := `{"metadata": {"finalizers": ` + finalizers + `}}`
	_, err := d.cluster.Client.AppsV1().Deployments(demoNamespace).Patch(ctx, demoDeployment, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// withPods calls a function while the pods of a program's Deployment run on this machine. If the program is not beside this
// one, it says what is missed without it.
func (d *demo) withPods(ctx context.Context, name, namespace, missed string, do func(folder string) error) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(own), name)
	if _, err := os.Stat(program); err != nil {
		fmt.Fprintf(d.streams.Err, "%s, needs %s beside this program: \"make build\" makes both\n", missed, name)
		return nil
	}
	folder, err := os.MkdirTemp("", "runlevel-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	pods, err := hostpods.Start(ctx, hostpods.Options{
		Config: d.sandbox.Config, Namespace: namespace, Selector: "app.kubernetes.io/name=" + name,
		Programs: map[string]string{name: program}, Folder: folder,
	})
	if err != nil {
		return err
	}
	defer func() { _ = pods.Stop() }()
	return do(folder)
}

// isGone says whether an object is not there any more.
func isGone(seen *unstructured.Unstructured) bool { return seen == nil }
