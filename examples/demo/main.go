// Command demo installs, updates and keeps a sample release on a control plane of its own, first by the command line
// and then by the operator, and deletes machines that are held by hooks, also those of a control plane, which it
// updates in place as well. It runs the commands that it prints, so that a
// reader can run them as well; it calls the API for the steps that a user would do with kubectl.
//
// "make demo" runs it in the root of the repository. The acts are in commandline.go, operator.go, machines.go,
// controlplane.go and guard.go; main has what they share: the control plane, the commands, and programs that run as
// pods.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	programs := flag.String("programs", "bin", "the folder of runlevel and of the programs that run in a cluster")
	flag.Parse()
	if err := run(ctx, *programs); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run starts a control plane, plays the acts on it, and stops it.
func run(ctx context.Context, programs string) (err error) {
	if programs, err = filepath.Abs(programs); err != nil { // pods have folders of their own
		return err
	}
	fmt.Fprintln(os.Stderr, "starting a control plane on this machine")
	s, err := sandbox.Start(ctx, sandbox.Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	fmt.Fprintf(os.Stderr, "Kubernetes is ready after %s\n", s.Took.Ready.Round(100*time.Millisecond))
	fmt.Fprintf(os.Stderr, "To watch the demo in a browser, run in another terminal: %s ui --kubeconfig %s\n",
		filepath.Join(programs, "runlevel"), s.Kubeconfig)
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	d := &demo{sandbox: s, client: client, objects: objects, programs: programs}
	return play(ctx, d.playCommandLine, d.playOperator, d.playMachines)
}

// A demo is a control plane, and how it is reached.
type demo struct {
	sandbox  *sandbox.Sandbox
	client   kubernetes.Interface
	objects  dynamic.Interface
	programs string // the folder
}

// play plays scenes one after the other.
func play(ctx context.Context, scenes ...func(context.Context) error) error {
	for _, scene := range scenes {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

func title(text string) { fmt.Printf("\n# %s\n", text) }

// runlevel prints a command, and runs it.
func (d *demo) runlevel(ctx context.Context, args ...string) error {
	return d.command(ctx, os.Stderr, args...).Run()
}

// command prints a command, and returns it.
func (d *demo) command(ctx context.Context, stderr io.Writer, args ...string) *exec.Cmd {
	title("runlevel " + strings.Join(args, " "))
	command := exec.CommandContext(ctx, filepath.Join(d.programs, "runlevel"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+d.sandbox.Kubeconfig)
	command.Stdout, command.Stderr = os.Stdout, stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	return command
}

// resource returns the objects of a resource, of the whole cluster if the namespace is empty.
func (d *demo) resource(group, version, resource, namespace string) dynamic.ResourceInterface {
	return d.objects.Resource(schema.GroupVersionResource{
		Group:    group,
		Version:  version,
		Resource: resource,
	}).Namespace(namespace)
}

// withPods calls a function while the pods of a Deployment run on this machine, as processes.
func (d *demo) withPods(ctx context.Context, name, namespace string, play func(folder string) error) error {
	folder, err := os.MkdirTemp("", "runlevel-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	pods, err := hostpods.Start(ctx, hostpods.Options{
		Config: d.sandbox.Config, Namespace: namespace, Selector: "app.kubernetes.io/name=" + name,
		Programs: map[string]string{"runlevel-cluster": filepath.Join(d.programs, "runlevel-cluster")}, Folder: folder,
	})
	if err != nil {
		return err
	}
	defer func() { _ = pods.Stop() }()
	return play(folder)
}

// isGone reports whether an object does not exist.
func isGone(live *unstructured.Unstructured) bool { return live == nil }
