package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
)

// controlPlaneAct updates the machines of a control plane in place, and replaces them.
type controlPlaneAct struct{ *machinesAct }

const planeName = "shop"

// controlPlane is the control plane of a Cluster, with simulated machines.
const controlPlane = `
- apiVersion: cluster.x-k8s.io/v1beta2
  kind: Cluster
  metadata: {name: ` + planeName + `}
  spec: {controlPlaneRef: {apiGroup: controlplane.runlevel.dev, kind: RunlevelControlPlane, name: ` + planeName + `}}
- apiVersion: infrastructure.runlevel.dev/v1alpha1
  kind: KwokMachineTemplate
  metadata: {name: small}
  spec: {template: {spec: {}}}
- apiVersion: controlplane.runlevel.dev/v1alpha1
  kind: RunlevelControlPlane
  metadata: {name: ` + planeName + `}
  spec:
    replicas: 3
    version: v1.35.0
    rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}
    machineTemplate:
      spec:
        infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: KwokMachineTemplate, name: small}
        bootstrap: {dataSecretName: none}
`

// playControlPlane plays the act while an extension runs that updates simulated machines.
func (a *machinesAct) playControlPlane(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "runlevel-demo-extension-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	stop, config, err := a.startExtension(ctx, folder)
	if err != nil {
		return err
	}
	defer stop()
	act := &controlPlaneAct{machinesAct: a}
	register := func(ctx context.Context) error {
		_, err := a.resource("runtime.cluster.x-k8s.io", "v1beta2", "extensionconfigs", "").Create(ctx, config,
			metav1.CreateOptions{})
		return err
	}
	return play(ctx, register, act.create, act.update, act.replace)
}

// startExtension runs the extension, and returns the object that registers it.
func (a *machinesAct) startExtension(ctx context.Context,
	folder string) (stop func(), config *unstructured.Unstructured, err error) {
	address := "127.0.0.1"
	certificate, key, err := cert.GenerateSelfSignedCertKey(address, []net.IP{net.ParseIP(address)}, nil)
	if err != nil {
		return nil, nil, err
	}
	certFile, keyFile := filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	if err := os.WriteFile(certFile, certificate, 0o600); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", address+":0") // a free port
	if err != nil {
		return nil, nil, err
	}
	address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, nil, err
	}
	program := exec.CommandContext(ctx, filepath.Join(a.programs, "runlevel-cluster"), "kwok-extension",
		"--listen="+address, "--cert-file="+certFile, "--key-file="+keyFile)
	program.Env = append(os.Environ(), "KUBECONFIG="+a.sandbox.Kubeconfig)
	if err := program.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	}
	return stop, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig",
		"metadata": map[string]any{"name": "kwok"},
		"spec": map[string]any{
			"clientConfig": map[string]any{"url": "https://" + address, "caBundle": certificate},
			"settings":     map[string]any{"delay": "1s"},
		},
	}}, nil
}

func (a *controlPlaneAct) planes() dynamic.ResourceInterface {
	return a.resource("controlplane.runlevel.dev", "v1alpha1", "runlevelcontrolplanes", machinesNamespace)
}

// create creates the control plane, and waits for its machines.
func (a *controlPlaneAct) create(ctx context.Context) error {
	title("a control plane of Cluster API, and an extension that updates its machines in place")
	var objects []map[string]any
	if err := yaml.Unmarshal([]byte(controlPlane), &objects); err != nil {
		return err
	}
	resources := []dynamic.ResourceInterface{
		a.resource("cluster.x-k8s.io", "v1beta2", "clusters", machinesNamespace),
		a.resource("infrastructure.runlevel.dev", "v1alpha1", "kwokmachinetemplates", machinesNamespace), a.planes(),
	}
	for i, object := range objects {
		if _, err := resources[i].Create(ctx, &unstructured.Unstructured{Object: object},
			metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return a.await(ctx, "are there")
}

// update updates the machines in place: they keep their names.
func (a *controlPlaneAct) update(ctx context.Context) error {
	if err := a.patch(ctx, map[string]any{"version": "v1.36.0"}); err != nil {
		return err
	}
	return a.await(ctx, "were updated in place")
}

// replace replaces the machines: from now on, older ones are outdated.
func (a *controlPlaneAct) replace(ctx context.Context) error {
	if err := a.patch(ctx, map[string]any{
		"rollout": map[string]any{"after": metav1.Now().UTC().Format("2006-01-02T15:04:05Z")},
	}); err != nil {
		return err
	}
	return a.await(ctx, "took their place, one after the other")
}

func (a *controlPlaneAct) patch(ctx context.Context, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	title(fmt.Sprintf("kubectl patch rcp %s --type merge -p '%s'", planeName, patch))
	_, err = a.planes().Patch(ctx, planeName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// await waits until all machines are available and up to date, and prints their names.
func (a *controlPlaneAct) await(ctx context.Context, what string) error {
	_, err := objectwatch.Await(ctx, a.planes(), planeName, func(live *unstructured.Unstructured) bool {
		if live == nil {
			return false
		}
		observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
		all, _, _ := unstructured.NestedInt64(live.Object, "status", "replicas")
		available, _, _ := unstructured.NestedInt64(live.Object, "status", "availableReplicas")
		updated, _, _ := unstructured.NestedInt64(live.Object, "status", "upToDateReplicas")
		return observed == live.GetGeneration() && all == 3 && available == 3 && updated == 3
	})
	if err != nil {
		return err
	}
	machines, err := a.resource("cluster.x-k8s.io", "v1beta2", "machines", machinesNamespace).List(ctx,
		metav1.ListOptions{})
	if err != nil {
		return err
	}
	var names []string
	for _, machine := range machines.Items {
		names = append(names, machine.GetName())
	}
	fmt.Printf("machines %s %s\n", strings.Join(names, ", "), what)
	return nil
}
