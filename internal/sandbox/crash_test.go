package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestDataSurviveACrash(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	client := kubernetes.NewForConfigOrDie(s.Config)
	maps := client.CoreV1().ConfigMaps("default")

	tests := []struct {
		name   string
		kill   []string
		resume []string
	}{
		{"the API server is killed", []string{sandbox.APIServer}, []string{sandbox.APIServer}},
		{"etcd is killed under it", []string{sandbox.Etcd}, []string{sandbox.Etcd}},
		{"both are killed", []string{sandbox.APIServer, sandbox.Etcd}, []string{sandbox.Etcd, sandbox.APIServer}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			created, err := maps.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "before-"},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, component := range test.kill {
				if err := s.Kill(component); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := maps.Update(ctx, created, metav1.UpdateOptions{}); err == nil {
				t.Error("a write succeeded while the component was killed")
			}
			for _, component := range test.resume {
				if err := s.Resume(t.Context(), component); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := maps.Get(t.Context(), created.Name, metav1.GetOptions{}); err != nil {
				t.Error("the ConfigMap from before the crash is lost:", err)
			}
			awaitServiceAccount(t, client) // the controllers work again
		})
	}
	select {
	case err := <-s.Died():
		t.Error("Died reports a component that was killed on purpose, or another one has exited:", err)
	default:
	}
}

func TestDiedReportsAnUnexpectedExit(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	killProcess(t, processOf(t, s, sandbox.ControllerManager))
	select {
	case err := <-s.Died():
		if got := err.Error(); !containsAll(got, sandbox.ControllerManager, "exited unexpectedly (signal: killed)",
			"its last lines") {
			t.Errorf("got %s, want the name and the last lines of the component", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("Died does not report the exit of the controller manager")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.Logs, sandbox.ControllerManager+".log")); err != nil {
		t.Error("the log that the error refers to:", err)
	}
	states, err := sandbox.List()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(states, func(st sandbox.Status) bool { return st.Name == s.Name && st.Failure != "" }) {
		t.Errorf("the failure is not listed: %+v", states)
	}
}

func TestStopMayBeCalledSeveralTimes(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{})
	state, err := sandbox.Find(s.Name)
	if err != nil {
		t.Fatal(err)
	}
	var stops errgroup.Group
	for range 3 {
		stops.Go(s.Stop)
	}
	if err := stops.Wait(); err != nil {
		t.Error(err)
	}
	for _, component := range state.Components {
		if alive(component.PID) {
			t.Errorf("process %d of %s still runs", component.PID, component.Name)
		}
	}
	if _, err := os.Stat(state.Logs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder still exists: %v", err)
	}
	if err := s.Resume(t.Context(), sandbox.Etcd); err == nil || !strings.Contains(err.Error(), "has been stopped") {
		t.Errorf("resuming a component after Stop: %v, want an error", err)
	}
}

func newNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func TestStopEndsAWaitingResume(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	for _, component := range []string{sandbox.APIServer, sandbox.Etcd} {
		if err := s.Kill(component); err != nil {
			t.Fatal(err)
		}
	}
	resumed := make(chan error, 1)
	go func() { resumed <- s.Resume(t.Context(), sandbox.APIServer) }() // it can't become ready without etcd
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Minute, true,
		func(context.Context) (bool, error) {
			state, err := sandbox.Find(s.Name)
			return err == nil && slices.ContainsFunc(state.Components, func(c sandbox.ComponentStatus) bool {
				return c.Name == sandbox.APIServer && c.PID != 0
			}), nil
		})
	if err != nil {
		t.Fatal("the API server was not started:", err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-resumed:
		if err == nil || !strings.Contains(err.Error(), "has been stopped") {
			t.Errorf("Resume returned %v, want an error about Stop", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("Resume still waits after Stop")
	}
}

// awaitServiceAccount creates a namespace, and waits until a controller creates its service account.
func awaitServiceAccount(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	namespace := newNamespace(t, client)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	accounts, err := client.CoreV1().ServiceAccounts(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer accounts.Stop()
	if event := <-accounts.ResultChan(); event.Type != watch.Added {
		t.Errorf("got %+v, want a new service account", event)
	}
}
