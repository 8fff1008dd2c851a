package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/etcdcluster"
)

// guardAct is the end of the last act: a machine of the control plane is replaced, with its member of etcd.
type guardAct struct {
	machinesAct
	etcd *etcdcluster.Cluster
}

const (
	guardName      = "etcd-quorum-guard" // the program, and its Deployment
	guardNamespace = "runlevel-etcd"
	guardHook      = "EtcdQuorumOperator"

	replacedMember, newMember = 1, 4 // of etcd, and of the machines
)

// playGuard ends the last act: a machine of the control plane is replaced, with its member of etcd.
func (a *machinesAct) playGuard(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		fmt.Fprintln(os.Stderr, "the end of the last act, with etcd, needs Linux, where each address that begins "+
			"with 127 is this machine's")
		return nil
	}
	return a.withPods(ctx, guardName, guardNamespace, func(folder string) error {
		programs, err := binaries.Locate(ctx, []string{sandbox.Etcd}, nil)
		if err != nil {
			return err
		}
		etcd, err := etcdcluster.New(etcdcluster.Options{Program: programs[sandbox.Etcd], Folder: folder})
		if err != nil {
			return err
		}
		defer etcd.Stop()
		if err := etcd.Bootstrap(ctx, 1, 2, 3); err != nil {
			return err
		}
		act := &guardAct{machinesAct: *a, etcd: etcd}
		return play(ctx, act.makeControlPlane, act.printMembers, act.installGuard, act.deleteMember, act.list,
			act.replaceMember, act.printMembers)
	})
}

// makeControlPlane creates three machines, at the addresses of the members.
func (a *guardAct) makeControlPlane(ctx context.Context) error {
	title("three machines of a control plane, with a member of etcd on each")
	for number := 1; number <= 3; number++ {
		if err := a.makeMember(ctx, number); err != nil {
			return err
		}
	}
	for number := 1; number <= 3; number++ {
		if err := a.awaitPhase(ctx, memberMachine(number), "Running"); err != nil {
			return err
		}
	}
	return nil
}

func memberMachine(number int) string { return fmt.Sprintf("control-plane-%d", number) }

// makeMember creates the machine of a member.
func (a *guardAct) makeMember(ctx context.Context, number int) error {
	machine := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
		"metadata": map[string]any{
			"name":   memberMachine(number),
			"labels": map[string]any{"machine.openshift.io/cluster-api-machine-role": "master"},
		},
		"spec": map[string]any{"providerSpec": map[string]any{"value": map[string]any{
			"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "KwokMachine",
			"spec": map[string]any{
				"address": a.etcd.Address(number),
				"node":    map[string]any{"labels": map[string]any{"node-role.kubernetes.io/control-plane": ""}},
			},
		}}},
	}}
	_, err := a.machines().Create(ctx, machine, metav1.CreateOptions{})
	return err
}

// installGuard applies the guard, with the certificate of a client of etcd, and waits for its hook.
func (a *guardAct) installGuard(ctx context.Context) error {
	title("kubectl create secret generic etcd-client --namespace " + guardNamespace)
	if err := a.createNamespace(ctx, guardNamespace); err != nil {
		return err
	}
	secret, err := a.clientSecret()
	if err != nil {
		return err
	}
	if _, err := a.client.CoreV1().Secrets(guardNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := a.runlevel(ctx, "apply", "manifests/etcd-quorum-guard", "--name", guardName, "--image",
		image); err != nil {
		return err
	}
	for number := 1; number <= 3; number++ {
		if _, err := objectwatch.Await(ctx, a.machines(), memberMachine(number), hasGuardHook); err != nil {
			return err
		}
	}
	fmt.Printf("each machine has the hook %s\n", guardHook)
	return nil
}

// clientSecret returns the Secret that the guard mounts.
func (a *guardAct) clientSecret() (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "etcd-client"}, Data: map[string][]byte{}}
	files := a.etcd.ClientFiles
	for key, file := range map[string]string{"ca.crt": files.CA, "tls.crt": files.Cert, "tls.key": files.Key} {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		secret.Data[key] = text
	}
	return secret, nil
}

func hasGuardHook(machine *unstructured.Unstructured) bool {
	if machine == nil {
		return false
	}
	hooks, _, _ := unstructured.NestedSlice(machine.Object, "spec", "lifecycleHooks", "preDrain")
	for _, value := range hooks {
		if hook, _ := value.(map[string]any); hook["name"] == guardHook {
			return true
		}
	}
	return false
}

// deleteMember deletes a machine, which the guard holds: without its member, two of three would be left.
func (a *guardAct) deleteMember(ctx context.Context) error {
	name := memberMachine(replacedMember)
	title("kubectl delete machine " + name)
	if err := a.machines().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := objectwatch.Await(ctx, a.machines(), name, func(machine *unstructured.Unstructured) bool {
		return machine == nil || machine.GetAnnotations()["pre-drain.hook.machine.runlevel.dev/"+guardHook] != ""
	})
	if err != nil {
		return err
	}
	return nil
}

// replaceMember creates the replacement, whose member joins as a learner, and waits until the machine no longer exists.
func (a *guardAct) replaceMember(ctx context.Context) error {
	deleted, made := memberMachine(replacedMember), memberMachine(newMember)
	title(made + " takes its place, and a learner joins etcd on it")
	if err := a.makeMember(ctx, newMember); err != nil {
		return err
	}
	if err := a.awaitPhase(ctx, made, "Running"); err != nil {
		return err
	}
	if err := a.etcd.Join(ctx, newMember); err != nil {
		return err
	}
	if _, err := objectwatch.Await(ctx, a.machines(), deleted, isGone); err != nil {
		return err
	}
	a.etcd.Kill(replacedMember)
	fmt.Printf("%s is gone, and etcd has had three voting members or more all along\n", deleted)
	return nil
}

// printMembers prints the members of etcd.
func (a *guardAct) printMembers(ctx context.Context) error {
	members, err := a.etcd.Members(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, member := range members {
		if member.IsLearner {
			member.Name += " (learner)"
		}
		names = append(names, member.Name)
	}
	fmt.Printf("etcd's members: %s\n", strings.Join(names, ", "))
	return nil
}
