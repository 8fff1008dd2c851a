package cli

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/etcdcluster"
	"github.com/runlevel/runlevel/manifests"
)

// guardDemo is the end of the last act: a machine of the control plane is replaced, with its member of etcd.
type guardDemo struct {
	machineDemo
	etcd *etcdcluster.EtcdCluster
}

const (
	guardName      = "etcd-quorum-guard" // the program, and its Deployment
	guardNamespace = "runlevel-etcd"
	guardHook      = "EtcdQuorumOperator"

	replacedMember, newMember = 1, 4 // of etcd, and of the machines
)

// withGuard tells the end of the last act, if the program of the guard is beside this one.
func (d *machineDemo) withGuard(ctx context.Context) error {
	const act = "the end of the last act, with etcd"
	if runtime.GOOS != "linux" {
		fmt.Fprintln(d.streams.Err, act+", needs Linux, where each address that begins with 127 is this machine's")
		return nil
	}
	return d.withPods(ctx, guardName, guardNamespace, act, func(folder string) error {
		programs, err := binaries.Locate(ctx, []string{sandbox.Etcd}, nil)
		if err != nil {
			return err
		}
		etcd, err := etcdcluster.New(etcdcluster.EtcdOptions{Program: programs[sandbox.Etcd], Folder: folder})
		if err != nil {
			return err
		}
		defer etcd.Stop()
		if err := etcd.Bootstrap(ctx, 1, 2, 3); err != nil {
			return err
		}
		g := &guardDemo{machineDemo: *d, etcd: etcd}
		return play(ctx, g.makeControlPlane, g.installGuard, g.deleteWithMember, g.replaceMember)
	})
}

// makeControlPlane makes three machines, at the addresses of the members.
func (d *guardDemo) makeControlPlane(ctx context.Context) error {
	d.title("three machines of a control plane, with a member of etcd on each")
	for number := 1; number <= 3; number++ {
		if err := d.makeMember(ctx, number); err != nil {
			return err
		}
	}
	for number := 1; number <= 3; number++ {
		if err := d.awaitPhase(ctx, memberMachine(number), "Running"); err != nil {
			return err
		}
	}
	return d.printMembers(ctx)
}

func memberMachine(number int) string { return fmt.Sprintf("control-plane-%d", number) }

// makeMember makes the machine of a member.
func (d *guardDemo) makeMember(ctx context.Context, number int) error {
	machine := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
		"metadata": map[string]any{
			"name": memberMachine(number), "labels": map[string]any{"machine.openshift.io/cluster-api-machine-role": "master"},
		},
		"spec": map[string]any{"providerSpec": map[string]any{"value": map[string]any{
			"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "KwokMachine",
			"spec": map[string]any{
				"address": d.etcd.Address(number),
				"node":    map[string]any{"labels": map[string]any{"node-role.kubernetes.io/control-plane": ""}},
			},
		}}},
	}}
	_, err := d.machines().Create(ctx, machine, metav1.CreateOptions{})
	return err
}

// installGuard applies the guard, with the certificate of a client of etcd, and waits for its hook.
func (d *guardDemo) installGuard(ctx context.Context) error {
	d.title("kubectl create secret generic etcd-client --namespace " + guardNamespace)
	if err := d.makeNamespace(ctx, guardNamespace); err != nil {
		return err
	}
	secret, err := d.clientSecret()
	if err != nil {
		return err
	}
	if _, err := d.cluster.Client.CoreV1().Secrets(guardNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := d.applyBundled(ctx, manifests.QuorumGuard(), "manifests/etcd-quorum-guard", guardName); err != nil {
		return err
	}
	for number := 1; number <= 3; number++ {
		if _, err := sandbox.Await(ctx, d.machines(), memberMachine(number), hasGuardHook); err != nil {
			return err
		}
	}
	fmt.Fprintf(d.streams.Out, "each machine has the hook %s\n", guardHook)
	return nil
}

// clientSecret returns the Secret that the guard mounts.
func (d *guardDemo) clientSecret() (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "etcd-client"}, Data: map[string][]byte{}}
	files := d.etcd.ClientFiles
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

// deleteWithMember deletes a machine, which the guard holds: without its member, two of three would be left.
func (d *guardDemo) deleteWithMember(ctx context.Context) error {
	name := memberMachine(replacedMember)
	d.title("kubectl delete machine " + name)
	if err := d.machines().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := sandbox.Await(ctx, d.machines(), name, func(machine *unstructured.Unstructured) bool {
		return machine == nil || machine.GetAnnotations()["pre-drain.hook.machine.runlevel.dev/"+guardHook] != ""
	})
	if err != nil {
		return err
	}
	return d.list(ctx)
}

// replaceMember makes the replacement, whose member joins as a learner, and waits until the machine is gone.
func (d *guardDemo) replaceMember(ctx context.Context) error {
	deleted, made := memberMachine(replacedMember), memberMachine(newMember)
	d.title(made + " takes its place, and a learner joins etcd on it")
	if err := d.makeMember(ctx, newMember); err != nil {
		return err
	}
	if err := d.awaitPhase(ctx, made, "Running"); err != nil {
		return err
	}
	if err := d.etcd.Join(ctx, newMember); err != nil {
		return err
	}
	if _, err := sandbox.Await(ctx, d.machines(), deleted, isGone); err != nil {
		return err
	}
	d.etcd.Kill(replacedMember)
	fmt.Fprintf(d.streams.Out, "%s is gone, and etcd has had three voting members or more all along\n", deleted)
	return d.printMembers(ctx)
}

// printMembers prints the members of etcd.
func (d *guardDemo) printMembers(ctx context.Context) error {
	members, err := d.etcd.Members(ctx)
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
	fmt.Fprintf(d.streams.Out, "etcd's members: %s\n", strings.Join(names, ", "))
	return nil
}
