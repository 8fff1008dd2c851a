package sandbox_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/sandbox"
)

func TestDataOutliveACrash(t *testing.T) {
	s := startOwn(t, sandbox.Options{Nodes: sandbox.NoNodes})
	client := kubernetes.NewForConfigOrDie(s.Config)
	maps := client.CoreV1().ConfigMaps("default")

	kill := func(component string) func(*testing.T) error {
		return func(*testing.T) error { return s.Kill(component) }
	}
	tests := []struct {
		name string
		end  []func(*testing.T) error
		back []string
	}{
		{"the API server is killed", []func(*testing.T) error{kill(sandbox.APIServer)}, []string{sandbox.APIServer}},
		{"the API server is asked to end", []func(*testing.T) error{func(t *testing.T) error {
			return s.Terminate(t.Context(), sandbox.APIServer)
		}}, []string{sandbox.APIServer}},
		{"etcd is killed under it", []func(*testing.T) error{kill(sandbox.Etcd)}, []string{sandbox.Etcd}},
		{"both are killed", []func(*testing.T) error{kill(sandbox.APIServer), kill(sandbox.Etcd)},
			[]string{sandbox.Etcd, sandbox.APIServer}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			made, err := maps.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "before-"},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, end := range test.end {
				if err := end(t); err != nil {
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
	s := startOwn(t, sandbox.Options{Nodes: sandbox.NoNodes})
	state, err := sandbox.Find(s.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range state.Components {
		if component.Name == sandbox.ControllerManager {
			killProcess(t, component.PID)
		}
	}
	select {
	case err := <-s.Died():
		if got := err.Error(); !containsAll(got, sandbox.ControllerManager, "ended by itself", "its last lines") {
			t.Errorf("the report does not say who died and quote it: %s", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody noticed that the controller manager died")
	}
}

func TestStopIsIdempotent(t *testing.T) {
	s := startOwn(t, sandbox.Options{Nodes: sandbox.NoNodes})
	for range 3 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitServiceAccount makes a namespace and waits until a controller has given
// it its service account.
func awaitServiceAccount(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "after-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	accounts, err := client.CoreV1().ServiceAccounts(made.Name).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer accounts.Stop()
	if _, ok := <-accounts.ResultChan(); !ok {
		t.Error("the controllers have not come back")
	}
}
