package sandbox

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
)

// pollInterval is the interval at which the readiness of the API server is polled: until it is ready, nothing can be
// watched.
const pollInterval = 50 * time.Millisecond

// awaitOK requests the paths one after the other, each until the API server answers with OK.
func awaitOK(ctx context.Context, client kubernetes.Interface, paths ...string) error {
	for _, path := range paths {
		var lastErr error
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			_, lastErr = client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
			return lastErr == nil, nil
		})
		if err != nil {
			return fmt.Errorf("the API server is not ready: %w", objectwatch.CauseOf(ctx, lastErr))
		}
	}
	return nil
}

// prepareCluster creates the nodes, the ordinary user's rights, the StorageClass and the CRDs, and waits until they
// exist, and until the controllers have created their first objects.
func (s *Sandbox) prepareCluster(ctx context.Context, o Options, crds []*unstructured.Unstructured,
	client kubernetes.Interface) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return bind(ctx, client, "cluster-admin", OrdinaryUser) })
	group.Go(func() error { return installCRDs(ctx, s.Config, client, crds) })
	group.Go(func() error { return createStorageClass(ctx, client) })
	if o.nodes() > 0 {
		group.Go(func() error { return s.withLog(Kwok, awaitNodes(ctx, client, o)) })
	}
	switch {
	case o.RealNodes > 0:
		group.Go(func() error { return bind(ctx, client, "system:kubelet-api-admin", kubeletClient) })
		group.Go(func() error { return s.nodes.Start(ctx, client, s.components) })
	case o.nodes() > 0:
		group.Go(func() error { return createNodes(ctx, client, o.nodes()) })
	}
	if o.runs("serviceaccount-controller") {
		group.Go(func() error { return s.withLog(ControllerManager, awaitDefaultServiceAccount(ctx, client)) })
	}
	return group.Wait()
}

// bind gives a user the rights of a cluster role.
func bind(ctx context.Context, client kubernetes.Interface, role, user string) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sandbox-" + user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind %s to %s: %w", user, role, err)
	}
	return nil
}

func awaitNodes(ctx context.Context, client kubernetes.Interface, o Options) error {
	missing := o.nodes()
	awaitsTaint := o.runs("node-lifecycle-controller")
	ready := map[string]bool{}
	nodes := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	_, err := watchtools.UntilWithSync(ctx, nodes, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		node, ok := event.Object.(*corev1.Node)
		if ok && isSchedulable(node, awaitsTaint) {
			ready[node.Name] = true
		}
		return len(ready) >= missing, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d ready nodes, found %d: %w", missing, len(ready),
			objectwatch.CauseOf(ctx, err))
	}
	return nil
}

func awaitDefaultServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	accounts := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "serviceaccounts",
		metav1.NamespaceDefault, fields.OneTermEqualSelector("metadata.name", "default"))
	_, err := watchtools.UntilWithSync(ctx, accounts, &corev1.ServiceAccount{}, nil,
		func(event watch.Event) (bool, error) {
			return event.Type == watch.Added, nil
		})
	if err != nil {
		return fmt.Errorf("wait for the service account of namespace default: %w", objectwatch.CauseOf(ctx, err))
	}
	return nil
}
