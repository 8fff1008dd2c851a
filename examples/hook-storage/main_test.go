package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/machines/openshift/nodelink"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var shared = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// A machine with an attached volume is drained, but not terminated until the volume is detached.
func TestStorage(t *testing.T) {
	f := shared.NewFixture(t)
	f.Manage(func(mgr ctrl.Manager) error {
		if err := nodelink.SetupWithManager(t.Context(), mgr); err != nil {
			return err
		}
		if err := kwok.SetupWithManager(mgr); err != nil {
			return err
		}
		return openshift.SetupWithManager(t.Context(), mgr, openshift.Options{})
	})
	runProgram(t)
	m := &machinev1beta1.Machine{
		ObjectMeta: f.Meta("db"),
		Spec: machinev1beta1.MachineSpec{ProviderSpec: machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{
			Raw: []byte(`{"apiVersion":"infrastructure.runlevel.dev/v1alpha1","kind":"KwokMachine"}`),
		}}},
	}
	volume := "pv-orders"
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "orders"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "storage.example", NodeName: m.Name,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}
	elsewhere := attachment.DeepCopy()
	elsewhere.Name, elsewhere.Spec.NodeName = "others", "another"
	f.MustCreate(m, attachment, elsewhere)
	f.DeleteAfterwards(elsewhere)
	f.AwaitMachine(m.Name, func(m *machinev1beta1.Machine) bool {
		return m.Status.NodeRef != nil && len(m.Spec.LifecycleHooks.PreTerminate) == 1
	})
	f.MustDelete(m)
	const statusKey = "pre-terminate.hook.machine.runlevel.dev/WaitForStorageDetach"
	held := f.AwaitMachine(m.Name, func(m *machinev1beta1.Machine) bool {
		return strings.HasSuffix(m.Annotations[statusKey], "to be deleted: orders")
	})
	node := &corev1.Node{}
	if err := f.Get(t.Context(), client.ObjectKey{Name: m.Name}, node); err != nil ||
		len(held.Spec.LifecycleHooks.PreTerminate) != 1 {
		t.Errorf("the node: %v; the hooks: %v", err, held.Spec.LifecycleHooks)
	}
	f.MustDelete(attachment)
	f.AwaitGone(m)
}

// runProgram runs the program with the rights of its manifests.
func runProgram(t *testing.T) {
	t.Helper()
	rights, err := os.ReadFile("rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for manifest := range strings.SplitSeq(string(rights), "\n---\n") {
		sandboxtest.Apply(t, shared.Connect(t), manifest)
	}
	config := rest.CopyConfig(shared.Sandbox(t).Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:hook-storage:hook-storage",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, config, &machinev1beta1.Machine{}, "hook-storage") }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the program ended: %v", err)
		}
	})
}

// The program shows how little code a hook needs.
func TestExampleIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines >= 100 {
		t.Errorf("main.go has %d lines", lines)
	}
}
