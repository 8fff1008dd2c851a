package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// isProgram is the variable with which the test's own program is the extension.
const isProgram = "TEST_IS_EXTENSION_EXTERNAL"

func TestMain(m *testing.M) {
	if os.Getenv(isProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// discovered is an ExtensionConfig as a controller leaves it that has asked the extension.
type discovered struct{ *runtimev1.ExtensionConfig }

func (discovered) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return &meta.NoKindMatchError{}
}

func (d discovered) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*runtimev1.ExtensionConfigList).Items = []runtimev1.ExtensionConfig{*d.DeepCopy()}
	return nil
}

// start runs the extension with a script, and returns hooks that find it.
func start(t *testing.T, script string, environment ...string) *runtimehook.InPlaceHooks {
	t.Helper()
	command := exec.Command(os.Args[0], "-script="+script)
	command.Env = append(append(os.Environ(), isProgram+"=1"), environment...)
	config := &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}}
	config.Spec.ClientConfig = runtimehooktest.StartProcess(t, command)
	handlers, err := new(runtimehook.Client).Discover(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	config.Status.Handlers = handlers
	config.Status.Conditions = []metav1.Condition{{
		Type:   runtimev1.ExtensionConfigDiscoveredCondition,
		Status: metav1.ConditionTrue,
	}}
	return runtimehook.NewInPlaceHooks(discovered{config}, discovered{config})
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// requestOf returns a question about a set whose version changes, and whose template is another after it.
func requestOf(t *testing.T, description string) *hooksv1.CanUpdateMachineSetRequest {
	t.Helper()
	side := func(name, version, description string) hooksv1.CanUpdateMachineSetRequestObjects {
		set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "rack", Name: name}}
		set.Spec.Template.Spec.Version = version
		set.Spec.Template.Spec.InfrastructureRef.Name = name
		template := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "ExternalMachineTemplate",
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"description": description}}},
		}}
		return runtimehook.NewMachineSetObjects(set, template, nil)
	}
	return &hooksv1.CanUpdateMachineSetRequest{
		Current: side("old", "v1.35.0", "64 GiB"),
		Desired: side("new", "v1.36.0", description),
	}
}

func updateOf(t *testing.T) *hooksv1.UpdateMachineRequest {
	t.Helper()
	request := &hooksv1.UpdateMachineRequest{}
	text := `{"desired":{"machine":{"metadata":{"namespace":"rack","name":"web-1"},"spec":{"version":"v1.36.0","providerID":"metal://rack7-1"}},
		"infrastructureMachine":{"apiVersion":"infrastructure.runlevel.dev/v1alpha1","kind":"ExternalMachine"}}}`
	if err := json.Unmarshal([]byte(text), request); err != nil {
		t.Fatal(err)
	}
	return request
}

// TestExitCodes has a script end in each way.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	script := write(t, filepath.Join(t.TempDir(), "script"), "#!/bin/sh\n. "+state+"\n")
	hooks := start(t, script)
	for name, test := range map[string]struct {
		does     string
		progress runtimehook.Progress
		err      string
	}{
		"done": {
			does: `echo "$HOOK $NAMESPACE/$MACHINE $VERSION $PROVIDER_ID"; exit 0`,
			progress: runtimehook.Progress{
				Done:    true,
				Message: "UpdateMachine rack/web-1 v1.36.0 metal://rack7-1",
			},
		},
		"again": {
			does:     `echo 42 installs; exit 75`,
			progress: runtimehook.Progress{RetryAfter: 42 * time.Second, Message: "installs"},
		},
		"again some time": {does: `exit 75`, progress: runtimehook.Progress{RetryAfter: 10 * time.Second}},
		"the request": {
			does:     `jq -r .desired.machine.metadata.name; exit 0`,
			progress: runtimehook.Progress{Done: true, Message: "web-1"},
		},
		"failed":          {does: `echo the fan is broken >&2; exit 3`, err: "answered Failure (the fan is broken)"},
		"failed silently": {does: `exit 3`, err: "script ended with exit status 3"},
	} {
		write(t, state, test.does)
		progress, err := hooks.UpdateMachine(t.Context(), updateOf(t))
		if progress != test.progress || (err == nil) != (test.err == "") ||
			err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %+v %v", name, progress, err)
		}
	}
}

// TestUpdateOfAHost runs the script of this example, with an ssh that knows a host.
func TestUpdateOfAHost(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "hosts.txt"), "metal://rack7-1 10.0.7.1\n")
	running := write(t, filepath.Join(folder, "running"), "Kubernetes v1.35.0\n")
	write(t, filepath.Join(folder, "ssh"), `#!/bin/sh
case $* in
*"root@10.0.7.1 kubelet --version") cat `+running+` ;;
*"root@10.0.7.1 nohup "*"install-kubelet v1.36.0 && reboot"*) echo Kubernetes v1.36.0 >`+running+` ;;
*) echo "$*" && exit 255 ;;
esac
`)
	hooks := start(t, "./update.sh", "PATH="+folder+":"+os.Getenv("PATH"), "HOSTS="+filepath.Join(folder, "hosts.txt"),
		"KEY=key")
	for description, want := range map[string]string{
		"64 GiB": "extension can-update-machineset.hosts can update in place",
		"96 GiB": "replaced, since machineSet spec.template.spec.version is not covered by extension " +
			"can-update-machineset.hosts; " +
			"infrastructureMachineTemplate spec.template.spec.description is not covered by extension " +
			"can-update-machineset.hosts",
	} {
		if decision, err := hooks.CanUpdateMachineSet(t.Context(), requestOf(t, description)); err != nil ||
			decision.String() != want {
			t.Errorf("%s: %s %v", description, decision, err)
		}
	}
	progress, err := hooks.UpdateMachine(t.Context(), updateOf(t))
	if err != nil || progress != (runtimehook.Progress{
		RetryAfter: 30 * time.Second,
		Message:    "installs v1.36.0 on 10.0.7.1",
	}) {
		t.Errorf("%+v %v", progress, err)
	}
	if progress, err = hooks.UpdateMachine(t.Context(), updateOf(t)); err != nil || !progress.Done {
		t.Errorf("%+v %v", progress, err)
	}
	unknown := updateOf(t)
	unknown.Desired.Machine.Spec.ProviderID = "metal://rack9-9"
	if _, err = hooks.UpdateMachine(t.Context(), unknown); err == nil ||
		!strings.Contains(err.Error(), "there is no host of metal://rack9-9") {
		t.Errorf("%v", err)
	}
}

// The program shows how little code an extension needs.
func TestExampleIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines >= 150 {
		t.Errorf("main.go has %d lines", lines)
	}
}
