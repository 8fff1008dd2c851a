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

func TestDataOutliveACrash(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	client := kubernetes.NewForConfigOrDie(s.Config)
	maps := client.CoreV1().ConfigMaps("default")

	tests := []struct {
		name string
		kill []string
		back []string
	}{
		{"the API server is killed", []string{sandbox.APIServer}, []string{sandbox.APIServer}},
		{"etcd is killed under it", []string{sandbox.Etcd}, []string{sandbox.Etcd}},
		{"both are killed", []string{sandbox.APIServer, sandbox.Etcd}, []string{sandbox.Etcd, sandbox.APIServer}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			made, err := maps.Create(t.Context(), &corev1.ConfigMap{
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
			gone, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := maps.Update(gone, made, metav1.UpdateOptions{}); err == nil {
				t.Error("a write succeeded while it was gone")
			}
			for _, component := range test.back {
				if err := s.Resume(t.Context(), component); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := maps.Get(t.Context(), made.Name, metav1.GetOptions{}); err != nil {
				t.Error("what was written before is lost:", err)
			}
			awaitServiceAccount(t, client) // the controllers work again
		})
	}
	select {
	case err := <-s.Died():
		t.Error("a death that was asked for is reported as an accident, or the others did not outlive it:", err)
	default:
	}
}

func TestDiedReportsAnAccident(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	killProcess(t, processOf(t, s, sandbox.ControllerManager))
	select {
	case err := <-s.Died():
		if got := err.Error(); !containsAll(got, sandbox.ControllerManager, "exited unexpectedly (signal: killed)",
			"its last lines") {
			t.Errorf("the report does not say who died and quote it: %s", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody noticed that the controller manager died")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.Logs, sandbox.ControllerManager+".log")); err != nil {
		t.Error("the log that the report points to is gone:", err)
	}
	states, err := sandbox.List()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(states, func(st sandbox.Status) bool { return st.Name == s.Name && st.Failure != "" }) {
		t.Errorf("the failure is not listed: %+v", states)
	}
}

func TestStopEndsAllHoweverOftenItIsCalled(t *testing.T) {
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
			t.Errorf("%s lives on as process %d", component.Name, component.PID)
		}
	}
	if _, err := os.Stat(state.Logs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is still there: %v", err)
	}
	if err := s.Resume(t.Context(), sandbox.Etcd); err == nil || !strings.Contains(err.Error(), "has been stopped") {
		t.Errorf("starting a component afterwards: %v", err)
	}
}

func newNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Name
}

func TestStopEndsAResumeThatWaits(t *testing.T) {
	s := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	for _, component := range []string{sandbox.APIServer, sandbox.Etcd} {
		if err := s.Kill(component); err != nil {
			t.Fatal(err)
		}
	}
	resumed := make(chan error, 1)
	go func() { resumed <- s.Resume(t.Context(), sandbox.APIServer) }() // which can't become ready without etcd
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
			t.Errorf("the resume ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the resume goes on waiting")
	}
}

// awaitServiceAccount makes a namespace and waits until a controller has given
// it its service account.
func awaitServiceAccount(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	made := newNamespace(t, client)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	accounts, err := client.CoreV1().ServiceAccounts(made).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer accounts.Stop()
	if event := <-accounts.ResultChan(); event.Type != watch.Added {
		t.Errorf("the controllers have not come back: %+v", event)
	}
}
