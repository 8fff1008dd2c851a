package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestErrorOfAFailedStart(t *testing.T) {
	tests := map[string]struct {
		programs map[string]string // instead of the real ones
		mode     os.FileMode
		options  sandbox.Options
		want     []string
	}{
		"a program fails": {
			programs: map[string]string{sandbox.APIServer: "#!/bin/sh\necho the sky fell\nexit 1\n"},
			want:     []string{"kube-apiserver exited unexpectedly", "the sky fell", "kube-apiserver.log"},
		},
		"a program is not executable": {
			programs: map[string]string{sandbox.Etcd: "#!/bin/sh\n"}, mode: 0o600,
			want: []string{"etcd", "make it executable"},
		},
		"a program is for another machine": {
			programs: map[string]string{sandbox.Etcd: "garbage"},
			want:     []string{"start etcd", "is not a program for this machine"},
		},
		"a port is taken at each attempt": {
			programs: map[string]string{sandbox.Etcd: "#!/bin/sh\necho bind: address already in use\nexit 1\n"},
			want:     []string{"etcd", "another program took its port"},
		},
		"the disk is full": {
			programs: map[string]string{sandbox.Etcd: "#!/bin/sh\necho write: no space left on device\nexit 1\n"},
			want:     []string{"etcd", "no space left on device", "free some space"},
		},
		"a CRD file is missing": {
			options: sandbox.Options{CRDs: []string{"testdata/none.yaml"}},
			want:    []string{"read CRDs", "testdata/none.yaml"},
		},
		"a file has another kind": {
			options: sandbox.Options{CRDs: []string{"testdata/no-crd.yaml"}},
			want:    []string{"testdata/no-crd.yaml", "found a ConfigMap"},
		},
		"a controller has a short name": {
			options: sandbox.Options{Controllers: []string{"*", "-serviceaccount"}},
			want:    []string{`"-serviceaccount"`, "ends in -controller"},
		},
		"the name is invalid": {
			options: sandbox.Options{Name: "../up"},
			want:    []string{`"../up"`, "lower-case letters"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.mode == 0 {
				test.mode = 0o700
			}
			t.Setenv(binaries.AssetsVariable, assetsWith(t, test.programs, test.mode))
			test.options.Nodes = sandbox.NoNodes
			s, err := sandbox.Start(t.Context(), test.options)
			if err == nil {
				t.Fatal("Start succeeded", s.Stop())
			}
			if !containsAll(err.Error(), test.want...) {
				t.Errorf("the error lacks one of %q:\n%v", test.want, err)
			}
		})
	}
}

func TestStartTriesAgainWithOtherPorts(t *testing.T) {
	lost := filepath.Join(t.TempDir(), "lost")
	real := assetsWith(t, nil, 0)
	t.Setenv(binaries.AssetsVariable, assetsWith(t, map[string]string{
		sandbox.Etcd: fmt.Sprintf("#!/bin/sh\nif [ ! -e %s ]; then touch %[1]s; echo address already in use; exit 1; "+
			"fi\nexec %s/etcd \"$@\"\n", lost, real),
	}, 0o700))
	sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	if _, err := os.Stat(lost); err != nil {
		t.Error("the first attempt did not fail:", err)
	}
}

func TestTwoSandboxesSideBySide(t *testing.T) {
	own, shared := sandboxtest.Start(t, sandbox.Options{Nodes: 2}), cluster.Sandbox(t)
	if own.Config.Host == shared.Config.Host || own.Name == shared.Name {
		t.Errorf("two sandboxes share a name or an address: %s at %s, %s at %s", own.Name, own.Config.Host, shared.Name,
			shared.Config.Host)
	}
	nodes, err := kubernetes.NewForConfigOrDie(own.Config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 2 {
		t.Errorf("got %d nodes, want 2", len(nodes.Items))
	}
	states, err := sandbox.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{own.Name, shared.Name} {
		if !slices.ContainsFunc(states, func(s sandbox.Status) bool { return s.Name == name && s.Ready }) {
			t.Errorf("%s is not listed as ready: %+v", name, states)
		}
	}
}

func TestOptionsReachTheComponents(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{
		Nodes:        sandbox.NoNodes,
		Controllers:  []string{"namespace-controller"},
		FeatureGates: map[string]bool{"CBORServingAndStorage": true},
	})
	// No controller creates service accounts, and Start did not wait for one. After the controller that removes
	// namespaces has removed one, other controllers would have acted, too.
	client := kubernetes.NewForConfigOrDie(s.Config)
	awaitDeletion(t, client)
	accounts, err := client.CoreV1().ServiceAccounts("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(accounts.Items) > 0 {
		t.Errorf("a disabled controller created %d service accounts", len(accounts.Items))
	}
	metrics, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(metrics),
		`kubernetes_feature_enabled{name="CBORServingAndStorage",stage="ALPHA"} 1`) {
		t.Errorf("the feature gate did not reach the API server: %v", err)
	}
}

// awaitDeletion creates a namespace, and waits until a controller has removed it.
func awaitDeletion(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	namespace := newNamespace(t, client)
	if err := client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	if err != nil {
		t.Error("the namespace controller does not work:", err)
	}
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	t.Setenv(binaries.AssetsVariable, assetsWith(t, map[string]string{
		sandbox.APIServer: fmt.Sprintf("#!/bin/sh\necho $$ > %s\nexec cat\n", started),
	}, 0o700))
	go func() {
		defer cancel()
		_ = wait.PollUntilContextTimeout(ctx, time.Millisecond, 5*time.Minute, true,
			func(context.Context) (bool, error) {
				content, _ := os.ReadFile(started)
				return len(content) > 0, nil
			})
	}()
	name := ownName("interrupted")
	_, err := sandbox.Start(ctx, sandbox.Options{Name: name, Nodes: sandbox.NoNodes})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Start returned %v, want %v", err, context.Canceled)
	}
	var pid int
	content, _ := os.ReadFile(started)
	if _, err := fmt.Sscan(string(content), &pid); err != nil {
		t.Fatal(err)
	}
	if err := awaitExit(t.Context(), pid); err != nil {
		t.Error("a component still runs:", err)
	}
	cache, err := binaries.CacheDir("sandboxes")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cache, name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder still exists: %v", err)
	}
}

// assetsWith returns a folder with the real programs, except for those in instead.
func assetsWith(t *testing.T, instead map[string]string, mode os.FileMode) string {
	t.Helper()
	sandboxtest.NeedControlPlane(t)
	programs, err := binaries.Locate(t.Context(), sandbox.Components(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, program := range programs {
		file := filepath.Join(dir, name)
		if script, ok := instead[name]; ok {
			err = os.WriteFile(file, []byte(script), mode)
		} else {
			err = os.Symlink(program, file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
